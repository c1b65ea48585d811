//! Files of secrets: which are used, and which are refused.
#![cfg(feature = "remote")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use saccade_ring::handshake::{
    Abi, Access, Greeting, HandshakeError, Next, Secret, SecretFile, Visitor, join,
};

fn write(path: &Path, bytes: &[u8], mode: u32) {
    std::fs::write(path, bytes).expect("a folder of ours");
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of ours");
}

/// What two sides make of each other's secrets.
fn meet(ours: &Secret, theirs: Arc<Secret>) -> Result<(), HandshakeError> {
    struct Peer(Greeting, Vec<u8>);
    impl std::io::Write for Peer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.room().copy_from_slice(bytes);
            self.1 = match self.0.received(bytes.len()) {
                Ok(Next::Send(challenge)) => challenge,
                Ok(Next::Grant(_)) => saccade_ring::handshake::refusal("welcome"),
                Ok(Next::Wait) => panic!("it sends whole messages"),
                Err(error) => saccade_ring::handshake::refusal(&error.to_string()),
            };
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Read for Peer {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let taken = std::io::Read::read(&mut &self.1[..], out)?;
            self.1.drain(..taken);
            Ok(taken)
        }
    }
    let mut peer = Peer(Greeting::new(Abi::RING, Some(theirs)), Vec::new());
    let visitor = Visitor { client: 1, access: Access::Stream { lane: 0 } };
    join(&mut peer, visitor, &Abi::RING, Some(ours)).map(|_| ())
}

fn agree(ours: &Secret, theirs: Arc<Secret>) -> bool {
    meet(ours, theirs) == Err(HandshakeError::Refused("welcome".into()))
}

#[test]
fn a_file_is_used_only_if_it_is_private_and_of_a_fit_size() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("secret");
    for (bytes, mode, expected) in [
        (32, 0o600, None),
        (4096, 0o400, None),
        (31, 0o600, Some("holds 31 bytes, must be 32 ..= 4096: head -c 32 /dev/urandom > ")),
        (4097, 0o600, Some("holds 4097 bytes, must be 32 ..= 4096")),
        (0, 0o600, Some("holds 0 bytes")),
        (32, 0o660, Some("its mode is 660, must be 6")),
        (32, 0o644, Some(" or less: chmod 600 ")),
        (32, 0o602, Some("its mode is 602")),
    ] {
        let _ = std::fs::remove_file(&path);
        write(&path, &vec![7; bytes], mode);
        let error = SecretFile::open(&path).err().map(|error| error.to_string());
        match expected {
            None => assert_eq!(error, None, "{bytes} bytes, {mode:o}"),
            Some(said) => assert!(error.as_ref().is_some_and(|e| e.contains(said)), "{error:?}"),
        }
    }
    let error = SecretFile::open(&folder.path().join("none")).expect_err("no file").to_string();
    assert!(error.ends_with("No such file or directory (os error 2)"), "{error}");
    let error = SecretFile::open(folder.path()).expect_err("a folder").to_string();
    assert!(error.ends_with(": is no file"), "{error}");
}

/// A pipe would be empty for the second process that reads it, and this one has no writer.
#[test]
fn a_pipe_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
    assert!(made.expect("mkfifo").success());
    let error = SecretFile::open(&path).expect_err("a pipe").to_string();
    assert!(error.ends_with(": is no file"), "{error}");
}

#[test]
fn a_file_that_changes_is_read_again_and_one_that_is_spoilt_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("secret");
    write(&path, &[1; 32], 0o600);
    let file = SecretFile::open(&path).expect("private");
    let (first, trouble) = file.current();
    assert_eq!(trouble, None);
    assert!(agree(&Secret::new(&[1; 32]), first.clone()));
    assert!(!agree(&Secret::new(&[2; 32]), first));

    // Another file in its place, as a mounted secret changes.
    let next = folder.path().join("next");
    write(&next, &[2; 33], 0o600);
    std::fs::rename(&next, &path).expect("one file system");
    let (second, trouble) = file.current();
    assert_eq!(trouble, None);
    assert!(agree(&Secret::new(&[2; 33]), second));

    write(&path, &[3; 5], 0o600);
    let (kept, trouble) = file.current();
    assert!(trouble.is_some_and(|error| error.to_string().contains("holds 5 bytes")));
    assert!(agree(&Secret::new(&[2; 33]), kept));
    std::fs::remove_file(&path).expect("there");
    let (kept, trouble) = file.current();
    assert!(trouble.is_some() && agree(&Secret::new(&[2; 33]), kept));
}
