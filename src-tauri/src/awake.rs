//! Keeping the computer from going to sleep by itself while something long is under way: a download of 160 GB would not be there in the morning.
//! Closing the lid and the menu's own Suspend do what they always do.
//!
//! The desktop is asked through its portal (`org.freedesktop.portal.Inhibit`, xdg-desktop-portal). Where there is none, the login manager is
//! (`org.freedesktop.login1`, systemd-logind). Where neither answers, the computer sleeps as it is set to, and downloads go on after it wakes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use fastar_app::App;
use gtk::gio::prelude::UnixFDListExt as _;
use gtk::glib::prelude::ToVariant as _;
use gtk::{gio, glib};
use tauri::{AppHandle, Manager as _};

use crate::words::words;

const PORTAL: &str = "org.freedesktop.portal.Desktop";
const PORTAL_PATH: &str = "/org/freedesktop/portal/desktop";
const PORTAL_INHIBIT: &str = "org.freedesktop.portal.Inhibit";
const PORTAL_REQUEST: &str = "org.freedesktop.portal.Request";
/// Of the portal's flags: 1 log out, 2 switch the user, 4 suspend, 8 idle.
const SUSPEND: u32 = 4;
const LOGIN: &str = "org.freedesktop.login1";
const LOGIN_PATH: &str = "/org/freedesktop/login1";
const LOGIN_MANAGER: &str = "org.freedesktop.login1.Manager";
/// A desktop that hangs holds nothing up.
const PATIENCE_MS: i32 = 10_000;
/// So often it is seen whether something is under way. A computer waits for minutes before it sleeps.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What keeps the computer awake.
enum Hold {
    /// Until its request is closed.
    Portal {
        bus: gio::DBusConnection,
        request: String,
    },
    /// Until what is in it is closed, which happens with it.
    Login(#[allow(dead_code, reason = "it is held")] gio::UnixFDList),
}

enum State {
    Free,
    /// The desktop has been asked and has not answered yet.
    Asking,
    Held(Hold),
    /// Nobody does it; asked again for the next work.
    Refused,
}

/// Keeps the computer awake from now on whenever something is under way and that is wanted. Called on the main thread.
pub(crate) fn follow(handle: &AppHandle) {
    let state = Rc::new(RefCell::new(State::Free));
    let handle = handle.clone();
    glib::timeout_add_local(LOOK_EVERY, move || {
        let wanted = handle
            .try_state::<App>()
            .is_some_and(|app| app.keeps_awake());
        look(&state, wanted, || {
            let reason = words(&handle).at_work;
            async move {
                let session = gio::bus_get_future(gio::BusType::Session).await;
                let system = gio::bus_get_future(gio::BusType::System).await;
                for bus in [&session, &system].into_iter().flatten() {
                    // The end of a bus is not that of the program.
                    bus.set_exit_on_close(false);
                }
                take(session.ok().as_ref(), system.ok().as_ref(), reason).await
            }
        });
        glib::ControlFlow::Continue
    });
}

/// Takes what keeps the computer awake when it is wanted, once, and gives it back when it is no longer.
fn look<F>(state: &Rc<RefCell<State>>, wanted: bool, ask: impl FnOnce() -> F)
where
    F: Future<Output = Result<Hold, glib::Error>> + 'static,
{
    let mut now = state.borrow_mut();
    match (&*now, wanted) {
        (State::Free, true) => {
            *now = State::Asking;
            let (asked, state) = (ask(), Rc::clone(state));
            glib::spawn_future_local(async move {
                let answer = asked.await;
                // What is no longer wanted by then is given back at the next look.
                state.replace(match answer {
                    Ok(hold) => State::Held(hold),
                    Err(error) => {
                        tracing::debug!(%error, "the computer may go to sleep meanwhile");
                        State::Refused
                    }
                });
            });
        }
        (State::Held(_), false) => {
            if let State::Held(Hold::Portal { bus, request }) =
                std::mem::replace(&mut *now, State::Free)
            {
                // Nothing is to be done if that fails: with the connection it ends in any case.
                bus.call(
                    Some(PORTAL),
                    &request,
                    PORTAL_REQUEST,
                    "Close",
                    None,
                    None,
                    gio::DBusCallFlags::NONE,
                    PATIENCE_MS,
                    gio::Cancellable::NONE,
                    |_| {},
                );
            }
        }
        (State::Refused, false) => *now = State::Free,
        _ => {}
    }
}

/// Asks the desktop on the session's bus, and else the login manager on the system's.
async fn take(
    session: Option<&gio::DBusConnection>,
    system: Option<&gio::DBusConnection>,
    reason: &str,
) -> Result<Hold, glib::Error> {
    if let Some(bus) = session {
        let options = HashMap::from([("reason", reason.to_variant())]);
        let asked = bus.call_future(
            Some(PORTAL),
            PORTAL_PATH,
            PORTAL_INHIBIT,
            "Inhibit",
            Some(&("", SUSPEND, options).to_variant()),
            None,
            gio::DBusCallFlags::NONE,
            PATIENCE_MS,
        );
        match asked.await {
            Ok(answer) => {
                // An object path is no text to `get`.
                let request = answer.try_child_value(0);
                if let Some(request) = request.as_ref().and_then(|request| request.str()) {
                    return Ok(Hold::Portal {
                        bus: bus.clone(),
                        request: request.to_owned(),
                    });
                }
            }
            Err(error) => tracing::debug!(%error, "the portal does not keep the computer awake"),
        }
    }
    let none = || glib::Error::new(gio::IOErrorEnum::NotFound, "nobody keeps it awake");
    let (_, held) = system
        .ok_or_else(none)?
        .call_with_unix_fd_list_future(
            Some(LOGIN),
            LOGIN_PATH,
            LOGIN_MANAGER,
            "Inhibit",
            Some(&("idle", "FaStar", reason, "block").to_variant()),
            None,
            gio::DBusCallFlags::NONE,
            PATIENCE_MS,
            gio::UnixFDList::NONE,
        )
        .await?;
    match held.length() {
        0 => Err(none()),
        _ => Ok(Hold::Login(held)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::test_bus::{Bus, until};

    const REASON: &str = "Why";
    const REQUEST: &str = "/org/freedesktop/portal/desktop/request/1";

    fn answers(
        bus: &gio::DBusConnection,
        path: &str,
        interface: &str,
        method: &str,
        answer: impl Fn(&str, glib::Variant, gio::DBusMethodInvocation) + Send + Sync + 'static,
    ) {
        let described =
            format!("<node><interface name=\"{interface}\">{method}</interface></node>");
        let node = gio::DBusNodeInfo::for_xml(&described).unwrap();
        let registered = bus.register_object(
            path,
            &node.lookup_interface(interface).unwrap(),
            move |_, _, _, _, method, arguments, invocation| answer(method, arguments, invocation),
            |_, _, _, _, _| ().to_variant(),
            |_, _, _, _, _, _| false,
        );
        registered.unwrap();
    }

    fn in_a_loop<F: Future<Output = ()>>(work: impl FnOnce(glib::MainContext) -> F) {
        let context = glib::MainContext::new();
        context
            .with_thread_default(|| context.block_on(work(context.clone())))
            .unwrap();
    }

    #[test]
    fn the_desktop_is_asked_once_while_it_is_wanted_and_told_when_it_is_no_longer() {
        let daemon = Bus::start();
        in_a_loop(|_| async {
            let (desktop, ours) = (daemon.connection(), daemon.connection());
            let said = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&said);
            let inhibit = "<method name=\"Inhibit\"><arg type=\"s\" direction=\"in\"/><arg type=\"u\" direction=\"in\"/>\
                           <arg type=\"a{sv}\" direction=\"in\"/><arg type=\"o\" direction=\"out\"/></method>";
            answers(
                &desktop,
                PORTAL_PATH,
                PORTAL_INHIBIT,
                inhibit,
                move |_, arguments, invocation| {
                    heard.lock().unwrap().push(arguments.to_string());
                    let request = glib::variant::ObjectPath::try_from(REQUEST.to_owned()).unwrap();
                    invocation.return_value(Some(&(request,).to_variant()));
                },
            );
            let heard = Arc::clone(&said);
            answers(
                &desktop,
                REQUEST,
                PORTAL_REQUEST,
                "<method name=\"Close\"/>",
                move |method, _, invocation| {
                    heard.lock().unwrap().push(method.to_owned());
                    invocation.return_value(None);
                },
            );
            daemon.own(&desktop, PORTAL).await;

            let state = Rc::new(RefCell::new(State::Free));
            let asked = Rc::new(RefCell::new(0));
            let look = |wanted| {
                look(&state, wanted, || {
                    *asked.borrow_mut() += 1;
                    let bus = ours.clone();
                    async move { take(Some(&bus), None, REASON).await }
                });
            };
            for _ in 0..2 {
                look(false);
                // Asked once, also before there is an answer.
                look(true);
                look(true);
                until(|| matches!(*state.borrow(), State::Held(_))).await;
                look(true);
                look(false);
                look(false);
                until(|| said.lock().unwrap().len() % 2 == 0).await;
            }
            assert_eq!(*asked.borrow(), 2);
            let inhibited = "('', uint32 4, {'reason': <'Why'>})";
            assert_eq!(
                *said.lock().unwrap(),
                [inhibited, "Close", inhibited, "Close"]
            );
        });
    }

    #[test]
    fn without_a_portal_the_login_manager_does_it_until_the_hold_is_dropped() {
        let daemon = Bus::start();
        in_a_loop(|_| async {
            let (login, ours) = (daemon.connection(), daemon.connection());
            // Nobody is there at all.
            assert!(take(Some(&ours), Some(&ours), REASON).await.is_err());
            assert!(take(None, None, REASON).await.is_err());

            let said = Arc::new(Mutex::new(String::new()));
            let heard = Arc::clone(&said);
            let (mut mine, theirs) = UnixStream::pair().unwrap();
            let theirs = Mutex::new(Some(theirs));
            let inhibit = "<method name=\"Inhibit\"><arg type=\"s\" direction=\"in\"/><arg type=\"s\" direction=\"in\"/>\
                           <arg type=\"s\" direction=\"in\"/><arg type=\"s\" direction=\"in\"/><arg type=\"h\" direction=\"out\"/></method>";
            answers(
                &login,
                LOGIN_PATH,
                LOGIN_MANAGER,
                inhibit,
                move |_, arguments, invocation| {
                    *heard.lock().unwrap() = arguments.to_string();
                    let list = gio::UnixFDList::from_array(theirs.lock().unwrap().take());
                    let number = glib::variant::Handle(0);
                    invocation
                        .return_value_with_unix_fd_list(Some(&(number,).to_variant()), Some(&list));
                },
            );
            daemon.own(&login, LOGIN).await;
            let hold = take(Some(&ours), Some(&ours), REASON).await.unwrap();
            assert!(matches!(hold, Hold::Login(_)));
            assert_eq!(*said.lock().unwrap(), "('idle', 'FaStar', 'Why', 'block')");
            mine.set_nonblocking(true).unwrap();
            let mut byte = [0];
            let held = mine.read(&mut byte).unwrap_err();
            assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
            drop(hold);
            until(|| matches!((&mine).read(&mut [0]), Ok(0))).await;
        });
    }
}
