//! Listings of a server, and of every master of a cluster.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use redis::{Value, cmd};

use super::pool::Pool;
use super::{SEPARATOR, number, unexpected};
use crate::url::Common;
use crate::{Entry, Filter, Key, Listing, Trouble};

/// Keys that a server looks at for one answer.
const PAGE: usize = 512;
/// Keys of one answer, at most: a hash table's bucket may be longer than a page.
const MAX_PAGE: usize = 64 * PAGE;
/// Answers to one listing, at most: a server whose cursor never comes back to 0 is not followed.
const MAX_PAGES: usize = 1 << 24;

pub(super) async fn list(
    pool: &Pool,
    common: &Common,
    filter: &Filter,
    mut tell: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<Listing, Trouble> {
    let pattern = format!("{}*", filter.prefix(&common.namespace, SEPARATOR));
    let mut listing = Listing::default();
    for slot in masters(pool).await? {
        let mut cursor = 0;
        for _ in 0..MAX_PAGES {
            let mut scan = cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(PAGE);
            // What is under a key of ours, and is no value, would not have a length.
            scan.arg("TYPE").arg("string");
            let (next, texts) = page(pool.ask_master(scan, slot).await?)?;
            let keys = ours(&texts, common, filter, &mut listing);
            for entry in entries(pool, common, &keys).await? {
                if listing.tell(entry, &mut tell).is_break() {
                    return Ok(listing);
                }
            }
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        if cursor != 0 {
            return Err(Trouble::Protocol(format!("a listing of more than {MAX_PAGES} pages")));
        }
    }
    Ok(listing)
}

/// A slot of each master; of one server, any.
async fn masters(pool: &Pool) -> Result<Vec<u16>, Trouble> {
    if !pool.is_cluster() {
        return Ok(vec![0]);
    }
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    let Value::Array(ranges) = pool.ask(slots).await? else {
        return Err(Trouble::Protocol("CLUSTER SLOTS: not an array".to_owned()));
    };
    let mut by_master = BTreeMap::new();
    for range in ranges {
        let (slot, master) = range_of_slots(&range).ok_or_else(|| unexpected(&range))?;
        by_master.entry(master).or_insert(slot);
    }
    Ok(by_master.into_values().collect())
}

/// Its first slot, and what identifies its master: address and port.
fn range_of_slots(range: &Value) -> Option<(u16, (Vec<u8>, i64))> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(slot), _, Value::Array(master), ..] = range.as_slice() else { return None };
    let [Value::BulkString(host), Value::Int(port), ..] = master.as_slice() else { return None };
    Some((u16::try_from(*slot).ok()?, (host.clone(), *port)))
}

fn page(answer: Value) -> Result<(u64, Vec<Vec<u8>>), Trouble> {
    let Value::Array(parts) = answer else { return Err(unexpected(&answer)) };
    let (cursor, keys) = match <[Value; 2]>::try_from(parts) {
        Ok([Value::BulkString(cursor), Value::Array(keys)]) => (cursor, keys),
        _ => return Err(Trouble::Protocol("SCAN: not a cursor and keys".to_owned())),
    };
    let cursor = str::from_utf8(&cursor).ok().and_then(|cursor| cursor.parse().ok());
    let cursor = cursor.ok_or_else(|| Trouble::Protocol("SCAN: not a cursor".to_owned()))?;
    if keys.len() > MAX_PAGE {
        return Err(Trouble::Protocol(format!("SCAN: more than {MAX_PAGE} keys at a time")));
    }
    let text = |key: Value| match key {
        Value::BulkString(text) => Ok(text),
        other => Err(unexpected(&other)),
    };
    Ok((cursor, keys.into_iter().map(text).collect::<Result<_, _>>()?))
}

fn ours(
    texts: &[Vec<u8>],
    common: &Common,
    filter: &Filter,
    listing: &mut Listing,
) -> Vec<(String, Key)> {
    let mut keys = Vec::new();
    for text in texts {
        let text = String::from_utf8_lossy(text).into_owned();
        match Key::from_text(&text, &common.namespace, SEPARATOR) {
            Some(key) if filter.takes(&key) => keys.push((text, key)),
            Some(_) => {}
            None => listing.foreign += 1,
        }
    }
    keys
}

/// Lengths and ages of keys, in one round trip. One that has gone has no length.
async fn entries(
    pool: &Pool,
    common: &Common,
    keys: &[(String, Key)],
) -> Result<Vec<Entry>, Trouble> {
    let mut commands = Vec::with_capacity(2 * keys.len());
    for (text, _) in keys {
        for name in ["STRLEN", "PTTL"] {
            let mut command = cmd(name);
            command.arg(text);
            commands.push(command);
        }
    }
    let answers: Vec<i64> =
        pool.ask_all(commands).await?.into_iter().map(number).collect::<Result<_, _>>()?;
    let pairs = keys.iter().zip(answers.as_chunks::<2>().0);
    let entry = |((_, key), [bytes, left]): (&(String, Key), &[i64; 2])| {
        let bytes = u64::try_from(*bytes).ok().filter(|bytes| *bytes > 0)?;
        let left = u64::try_from(*left).ok().map(Duration::from_millis);
        let age = common.ttl.zip(left).map(|(ttl, left)| ttl.saturating_sub(left));
        Some(Entry { key: *key, bytes, age })
    };
    Ok(pairs.filter_map(entry).collect())
}
