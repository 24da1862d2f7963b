//! Who listens on a port that is taken: FaStar itself, or somebody else. Whatever answers may be anybody's: little of it is read, in a short time, and
//! none of it is shown.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fastar_api::{ApiError, AppInfo, ErrorCode};

/// In all; on one computer an answer takes a moment.
const PATIENCE: Duration = Duration::from_secs(2);
/// Far more than the answer has.
const MOST_BYTES: usize = 1 << 16;

/// Whether what listens there answers as FaStar does.
pub(crate) fn is_fastar(port: u16) -> bool {
    answer(port).is_some_and(|bytes| is_ours(&bytes))
}

fn answer(port: u16) -> Option<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    write!(
        stream,
        "POST /api/app_info HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    .ok()?;
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while bytes.len() < MOST_BYTES {
        // A time-out of zero would be none.
        let left = end.checked_duration_since(Instant::now())?;
        stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .ok()?;
        match stream.read(&mut piece).ok()? {
            0 => return Some(bytes),
            n => bytes.extend_from_slice(piece.get(..n)?),
        }
    }
    None
}

/// Whether this is a good answer to the command `app_info`, or how FaStar says that a key is needed for one.
fn is_ours(answer: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(answer) else {
        return false;
    };
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    if head.starts_with("HTTP/1.1 401 ") {
        return serde_json::from_str::<ApiError>(body)
            .is_ok_and(|error| error.code == ErrorCode::NoAccess);
    }
    head.starts_with("HTTP/1.1 200 ") && serde_json::from_str::<AppInfo>(body).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;

    use super::*;

    const BODY: &str = r#"{"version":"1","face":"web","data_folder":"/d","notice":null}"#;

    #[test]
    fn only_an_answer_of_fastar_is_one() {
        assert!(is_ours(
            format!("HTTP/1.1 200 OK\r\na: b\r\n\r\n{BODY}").as_bytes()
        ));
        let refused = r#"{"code":"no_access","message":"m","hint":null,"details":null}"#;
        assert!(is_ours(
            format!("HTTP/1.1 401 Unauthorized\r\n\r\n{refused}").as_bytes()
        ));
        for other in [
            format!("HTTP/1.1 401 Unauthorized\r\n\r\n{BODY}"),
            format!("HTTP/1.1 200 OK\r\n\r\n{refused}"),
            format!(
                "HTTP/1.1 401 Unauthorized\r\n\r\n{}",
                refused.replace("no_access", "not_found")
            ),
            String::new(),
            BODY.to_owned(),
            format!("HTTP/1.1 404 Not Found\r\n\r\n{BODY}"),
            format!("HTTP/1.1 200 OK\r\n\r\n{BODY} and more"),
            "HTTP/1.1 200 OK\r\n\r\n{}".to_owned(),
            "HTTP/1.1 200 OK\r\n\r\n<html>FaStar</html>".to_owned(),
        ] {
            assert!(!is_ours(other.as_bytes()), "{other:?}");
        }
        assert!(!is_ours(b"HTTP/1.1 200 OK\r\n\r\n\xff"));
    }

    #[test]
    fn whoever_says_nothing_or_never_ends_is_somebody_else() {
        for endless in [false, true] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let other = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                while endless && stream.write_all(&[b'x'; 4096]).is_ok() {}
                // Until the other side has had enough.
                let _ = stream.read_to_end(&mut Vec::new());
            });
            assert!(!is_fastar(port));
            other.join().unwrap();
        }
    }
}
