//! Tasks on a server.

use super::Redis;
use super::answer::Answer;
use crate::entry::WorkerId;
use crate::error::Result;
use crate::tasks::{
    Amounts, Collected, Held, KnownTask, LONGEST_LEASE, MAX_COLLECTED, NewTask, Portion, TaskId, TaskKind,
    Tasks, Wanted,
};
use std::time::Duration;

fn decimal(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn milliseconds(lease: Duration) -> Vec<u8> {
    lease.min(LONGEST_LEASE).as_millis().to_string().into_bytes()
}

/// Four decimal numbers.
fn four(amounts: &Amounts) -> Vec<u8> {
    let Amounts { files, bytes, all_files, all_bytes } = amounts;
    format!("{files} {bytes} {all_files} {all_bytes}").into_bytes()
}

impl Answer {
    fn task_id(&self) -> Result<TaskId> {
        self.bytes()?.try_into().map(TaskId).map_err(|_| self.nonsense())
    }

    fn task_kind(&self) -> Result<TaskKind> {
        match self.bytes()? {
            [kind] => Ok(TaskKind(*kind)),
            _ => Err(self.nonsense()),
        }
    }

    fn portion(&self) -> Result<Portion> {
        let fields = self.list()?;
        let [task, kind, number, token, about, content] = fields.as_slice() else {
            return Err(self.nonsense());
        };
        Ok(Portion {
            task: task.task_id()?,
            kind: kind.task_kind()?,
            number: number.number()?,
            token: token.number()?,
            about: about.bytes()?.to_vec(),
            content: content.bytes()?.to_vec(),
        })
    }

    fn known_task(&self) -> Result<(u64, KnownTask)> {
        let fields = self.list()?;
        let [id, kind, owner, portions, finished, taken, order, workers, age, amounts @ ..] =
            fields.as_slice()
        else {
            return Err(self.nonsense());
        };
        let (workers, [files, bytes, all_files, all_bytes]) = (workers.list()?, amounts) else {
            return Err(self.nonsense());
        };
        let amounts = Amounts {
            files: files.number()?,
            bytes: bytes.number()?,
            all_files: all_files.number()?,
            all_bytes: all_bytes.number()?,
        };
        let known = KnownTask {
            id: id.task_id()?,
            kind: kind.task_kind()?,
            owner: WorkerId(owner.text()?),
            portions: portions.number()?,
            finished: finished.number()?,
            taken: taken.number()?,
            workers: workers.iter().map(|name| name.text().map(WorkerId)).collect::<Result<_>>()?,
            age: Duration::from_millis(age.number()?),
            amounts,
        };
        Ok((order.number()?, known))
    }
}

impl Tasks for Redis {
    fn open_task(&self, task: &NewTask<'_>, lease: Duration) -> Result<()> {
        let NewTask { id, kind, priority, owner, about, amounts } = task;
        let arguments = [
            id.0.to_vec(),
            vec![kind.0],
            decimal((*priority).into()),
            owner.0.clone().into_bytes(),
            milliseconds(lease),
            about.to_vec(),
            four(amounts),
        ];
        self.link().call("open_task", &arguments).map(drop)
    }

    fn add_portions(&self, id: TaskId, count: u64, contents: &[Vec<u8>]) -> Result<bool> {
        let arguments: Vec<Vec<u8>> =
            [id.0.to_vec(), decimal(count)].into_iter().chain(contents.iter().cloned()).collect();
        Ok(self.link().call("add_portions", &arguments)?.text()? == "done")
    }

    fn take(&self, worker: &WorkerId, wanted: Wanted<'_>, lease: Duration) -> Result<Option<Portion>> {
        let mut arguments =
            vec![worker.0.clone().into_bytes(), milliseconds(lease), milliseconds(LONGEST_LEASE)];
        match wanted {
            Wanted::Of(id) => arguments.extend([id.0.to_vec(), Vec::new(), decimal(0)]),
            Wanted::Any { kinds, except, priority } => {
                let kinds = kinds.iter().map(|kind| kind.0).collect();
                arguments.extend([Vec::new(), kinds, decimal(priority.into())]);
                arguments.extend(except.iter().map(|id| id.0.to_vec()));
            }
        }
        let answer = self.link().call("take", &arguments)?;
        match answer.list()?.is_empty() {
            true => Ok(None),
            false => answer.portion().map(Some),
        }
    }

    fn keep(&self, held: &[Held], lease: Duration) -> Result<Vec<bool>> {
        let mut arguments = vec![milliseconds(lease)];
        for it in held {
            match it {
                Held::Task(id, amounts) => arguments.extend([id.0.to_vec(), Vec::new(), four(amounts)]),
                Held::Portion { task, number, token } => {
                    arguments.extend([task.0.to_vec(), decimal(*number), decimal(*token)]);
                }
            }
        }
        let answer = self.link().call("keep", &arguments)?;
        let kept = answer.list()?;
        if kept.len() != held.len() {
            return Err(answer.nonsense());
        }
        kept.iter().map(Answer::flag).collect()
    }

    fn finish(&self, portion: &Portion, result: &[u8]) -> Result<bool> {
        let mut link = self.link();
        let arguments = [
            link.next_request(),
            portion.task.0.to_vec(),
            decimal(portion.number),
            decimal(portion.token),
            result.to_vec(),
        ];
        Ok(link.call("finish", &arguments)?.text()? == "done")
    }

    fn put_back(&self, portion: &Portion) -> Result<()> {
        let arguments = [portion.task.0.to_vec(), decimal(portion.number), decimal(portion.token)];
        self.link().call("put_back", &arguments).map(drop)
    }

    fn collect(&self, id: TaskId, numbers: &[u64]) -> Result<Option<Collected>> {
        let numbers = numbers.iter().take(MAX_COLLECTED).map(|number| decimal(*number));
        let arguments: Vec<Vec<u8>> = [id.0.to_vec()].into_iter().chain(numbers).collect();
        let answer = self.link().call("collect", &arguments)?;
        let found = answer.list()?;
        let [finished, overtaken, results @ ..] = found.as_slice() else {
            return if found.is_empty() { Ok(None) } else { Err(answer.nonsense()) };
        };
        let pairs = results.chunks(2).map(|pair| match pair {
            [number, result] => Ok((number.number()?, result.bytes()?.to_vec())),
            _ => Err(answer.nonsense()),
        });
        let results = pairs.collect::<Result<Vec<_>>>()?;
        Ok(Some(Collected { finished: finished.number()?, overtaken: overtaken.number()?, results }))
    }

    fn forget_results(&self, id: TaskId, numbers: &[u64]) -> Result<()> {
        let numbers = numbers.iter().map(|number| decimal(*number));
        let arguments: Vec<Vec<u8>> = [id.0.to_vec()].into_iter().chain(numbers).collect();
        self.link().call("forget_results", &arguments).map(drop)
    }

    fn close_task(&self, id: TaskId) -> Result<()> {
        self.link().call("close_task", &[id.0.to_vec()]).map(drop)
    }

    fn known_tasks(&self) -> Result<Vec<KnownTask>> {
        let answer = self.link().call("known_tasks", &[])?;
        let mut known = answer.list()?.iter().map(Answer::known_task).collect::<Result<Vec<_>>>()?;
        known.sort_by_key(|(order, _)| *order);
        Ok(known.into_iter().map(|(_, known)| known).collect())
    }
}
