//! Where the cgroup hierarchies are mounted, from mountinfo (proc_pid_mountinfo(5)).

use crate::parse::unescape_octal;
use crate::{HostError, Root};

/// A mount of a cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupMount {
    /// Which cgroup of the hierarchy is seen at `point`.
    pub root: String,
    /// Where.
    pub point: String,
    /// Controllers of a v1 hierarchy; `None` for v2.
    pub controllers: Option<Vec<String>>,
}

/// Cgroup mounts that the reader of `root` sees.
pub(crate) fn cgroup_mounts(root: &Root) -> Result<Vec<CgroupMount>, HostError> {
    // Our own mounts, since we open the files; the first process's where /proc belongs
    // to another pid namespace, in which we have no number.
    let text = root.text("proc/self/mountinfo").or_else(|_| root.text("proc/1/mountinfo"))?;
    Ok(text.lines().filter_map(parse_line).collect())
}

fn parse_line(line: &str) -> Option<CgroupMount> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split_ascii_whitespace().skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let mut kind = kind.split_ascii_whitespace();
    let controllers = match kind.next()? {
        "cgroup2" => None,
        "cgroup" => Some(kind.next_back()?.split(',').map(str::to_owned).collect()),
        _ => return None,
    };
    Some(CgroupMount { root: unescape_octal(root), point: unescape_octal(point), controllers })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_both_versions() {
        let v1 = "32 31 0:29 /docker/ab /sys/fs/cgroup/cpu\\040x rw,relatime shared:9 - cgroup \
                  cgroup rw,cpu,cpuacct";
        let mount = parse_line(v1).unwrap();
        assert_eq!(
            (mount.root.as_str(), mount.point.as_str()),
            ("/docker/ab", "/sys/fs/cgroup/cpu x")
        );
        assert_eq!(mount.controllers.unwrap(), ["rw", "cpu", "cpuacct"]);
        let v2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(parse_line(v2).unwrap().controllers, None);
        assert_eq!(parse_line("22 27 0:21 / /proc rw,relatime - proc proc rw"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*( - cgroup2? .*)?") {
            let _ = parse_line(&text);
        }
    }
}
