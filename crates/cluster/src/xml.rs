//! The subset of XML that `gluster --xml` prints: elements and text. Attributes, comments, and declarations are passed
//! over; document types are refused, so that no entities can be defined.

/// Nesting that is accepted.
const MAX_DEPTH: usize = 32;

/// An element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Name.
    pub name: String,
    /// Text directly within it, with white space at both ends removed.
    pub text: String,
    /// Elements within it.
    pub children: Vec<Element>,
}

impl Element {
    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Text of the first child of this name.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }

    /// The element at the end of a path of names.
    pub fn descendant(&self, path: &[&str]) -> Option<&Element> {
        path.iter().try_fold(self, |element, name| element.child(name))
    }
}

/// Decodes a document.
///
/// # Errors
/// What is wrong with it.
pub fn decode(text: &str) -> Result<Element, String> {
    let mut open: Vec<Element> = vec![Element::default()];
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        add_text(&mut open, before)?;
        if let Some(comment) = tag.strip_prefix("<!--") {
            rest = comment.split_once("-->").ok_or("a comment does not end")?.1;
            continue;
        }
        let (tag, after) = tag[1..].split_once('>').ok_or("a tag does not end")?;
        rest = after;
        if tag.starts_with('!') {
            return Err("it has a declaration".to_owned());
        }
        if tag.starts_with('?') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let mut closed = open.pop().filter(|_| !open.is_empty()).ok_or("an end without a beginning")?;
            if closed.name != name.trim() {
                return Err(format!("<{}> is not ended", closed.name));
            }
            closed.text = closed.text.trim().to_owned();
            open.last_mut().ok_or("an end without a beginning")?.children.push(closed);
            continue;
        }
        let is_empty = tag.ends_with('/');
        let name = tag.trim_end_matches('/').split_whitespace().next().ok_or("a tag without a name")?;
        let element = Element { name: name.to_owned(), ..Element::default() };
        if is_empty {
            open.last_mut().ok_or("no parent")?.children.push(element);
        } else if open.len() > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} elements within each other"));
        } else {
            open.push(element);
        }
    }
    let mut root = open.pop().filter(|_| open.is_empty()).ok_or("an element does not end")?;
    match (root.children.len(), root.children.pop()) {
        (1, Some(document)) => Ok(document),
        (count, _) => Err(format!("{count} elements at the top")),
    }
}

/// Appends text to the innermost element, with the five predefined entities replaced.
fn add_text(open: &mut [Element], text: &str) -> Result<(), String> {
    let element = open.last_mut().ok_or("no parent")?;
    let mut rest = text;
    while let Some((before, entity)) = rest.split_once('&') {
        let (name, after) = entity.split_once(';').ok_or("an entity does not end")?;
        let letter = match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => return Err("an unknown entity".to_owned()),
        };
        element.text.push_str(before);
        element.text.push(letter);
        rest = after;
    }
    element.text.push_str(rest);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn elements_and_their_text() {
        let text =
            "<?xml version=\"1.0\"?>\n<a>\n <b x=\"1\">one &lt;&amp;<c/> two</b><!-- <d> -->\n<b>2</b></a>\n";
        let document = decode(text).unwrap();
        assert_eq!(document.name, "a");
        assert_eq!(document.text_of("b"), Some("one <& two"));
        assert_eq!(document.children.len(), 2);
        assert_eq!(document.descendant(&["b", "c"]).unwrap().name, "c");
        assert!(document.descendant(&["b", "d"]).is_none());
    }

    #[test]
    fn malformed_documents_are_refused() {
        let deep = "<a>".repeat(100) + &"</a>".repeat(100);
        for bad in [
            "",
            "text",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a><",
            "<>",
            "</>",
            "<a>&x;</a>",
            "<a>&amp</a>",
            "<!DOCTYPE a><a/>",
            "<!-- <a/>",
            &deep,
        ] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }
}
