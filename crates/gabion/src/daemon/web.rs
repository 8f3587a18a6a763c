//! The dashboard: a page of constant files in the program, which reads the API like any other client
//! (`docs/operating/dashboard.md`). The files hold nothing secret, so they are served without a token.

use hyper::Method;

/// A file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) body: &'static str,
}

const ASSETS: [Asset; 7] = [
    Asset { path: "/", content_type: "text/html; charset=utf-8", body: include_str!("web/index.html") },
    Asset {
        path: "/style.css",
        content_type: "text/css; charset=utf-8",
        body: include_str!("web/style.css"),
    },
    script("/app.js", include_str!("web/app.js")),
    script("/client.js", include_str!("web/client.js")),
    script("/page.js", include_str!("web/page.js")),
    script("/verdict.js", include_str!("web/verdict.js")),
    script("/views.js", include_str!("web/views.js")),
];

const fn script(path: &'static str, body: &'static str) -> Asset {
    Asset { path, content_type: "text/javascript; charset=utf-8", body }
}

/// The file that a request asks for.
pub(super) fn asset(method: &Method, path: &str) -> Option<&'static Asset> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    ASSETS.iter().find(|asset| is_read && asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::{ASSETS, asset};
    use hyper::Method;

    #[test]
    fn files_are_served_by_their_exact_path() {
        assert!(asset(&Method::GET, "/").unwrap().body.contains("<title>"));
        assert_eq!(asset(&Method::HEAD, "/app.js"), asset(&Method::GET, "/app.js"));
        for (method, path) in [(Method::POST, "/"), (Method::GET, "//"), (Method::GET, "/web/app.js")] {
            assert_eq!(asset(&method, path), None, "{method} {path}");
        }
    }

    /// The policy of the answers forbids inline code; a page that needed some would break silently.
    #[test]
    fn nothing_is_inline_or_from_elsewhere() {
        for file in &ASSETS {
            let body = file.body;
            for wrong in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!body.contains(wrong), "{} has {wrong}", file.path);
            }
            for wrong in ["http://", "https://", "style=", "onclick", "<style", "javascript:", "@import"] {
                assert!(!body.contains(wrong), "{} has {wrong}", file.path);
            }
            // Whatever the page names is served.
            for attribute in ["href=\"", "src=\"", "from \"."] {
                for rest in body.split(attribute).skip(1) {
                    let target = rest.split('"').next().unwrap();
                    let is_here = target.starts_with("#")
                        || target.starts_with("data:")
                        || asset(&Method::GET, target).is_some();
                    assert!(is_here, "{} names {target}", file.path);
                }
            }
        }
    }
}
