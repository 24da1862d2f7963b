//! Notifications of the desktop: that something long has ended while nobody looked at the window.
//!
//! They go to `org.freedesktop.Notifications` on the session bus (Desktop Notifications Specification 1.2, freedesktop.org). Where nobody
//! answers there, none is shown and nothing is lost: the window says the same.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gtk::glib::prelude::ToVariant as _;
use gtk::{gio, glib};
use tauri::{AppHandle, Manager as _};

use crate::geometry;

const NAME: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
/// What a click on the notification itself is called.
const CLICK: &str = "default";
/// Most characters of a title and of a text; a desktop shows fewer.
const MOST_CHARACTERS: usize = 200;
/// A desktop that hangs holds nothing up.
const PATIENCE_MS: i32 = 10_000;

/// What is shown, plain text both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    title: String,
    text: String,
}

impl Note {
    /// Control characters become spaces, and what is too long is cut.
    fn new(title: &str, text: &str) -> Self {
        let plain = |words: &str| -> String {
            let mut plain: String = words
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .take(MOST_CHARACTERS)
                .collect();
            if words.chars().nth(MOST_CHARACTERS).is_some() {
                plain.push('…');
            }
            plain
        };
        Self {
            title: plain(title),
            text: plain(text),
        }
    }

    fn arguments(&self) -> glib::Variant {
        // The text may be read as markup, the title never is.
        let text = glib::markup_escape_text(&self.text);
        let hints = HashMap::from([("desktop-entry", "fastar".to_variant())]);
        (
            "FaStar",
            0u32, // in the place of none before
            "fastar",
            self.title.as_str(),
            text.as_str(),
            [CLICK, "FaStar"].as_slice(),
            hints,
            -1i32, // for as long as the desktop finds right
        )
            .to_variant()
    }
}

/// Shows a notification, unless somebody looks at the window. A click on it brings the window to the front.
pub(crate) fn show(handle: &AppHandle, title: &str, text: &str) {
    let note = Note::new(title, text);
    let asked = handle.clone();
    let begun = handle.run_on_main_thread(move || {
        let Some(window) = asked.get_webview_window("main") else {
            return;
        };
        if window.is_focused().unwrap_or(false) {
            return;
        }
        glib::spawn_future_local(async move {
            let shown = async {
                let bus = gio::bus_get_future(gio::BusType::Session).await?;
                // The end of the session's bus is not that of the program.
                bus.set_exit_on_close(false);
                let clicked = move |token: &str| geometry::to_the_front(&window, token);
                tell(&bus, &note, clicked).await
            };
            if let Err(error) = shown.await {
                tracing::debug!(%error, "no notification could be shown");
            }
        });
    });
    if let Err(error) = begun {
        tracing::debug!(%error, "the window has ended meanwhile");
    }
}

/// Asks the desktop to show it, and calls `clicked` with the id of the click ("" where there is none) for each click until it is gone.
async fn tell(
    bus: &gio::DBusConnection,
    note: &Note,
    clicked: impl Fn(&str) + 'static,
) -> Result<(), glib::Error> {
    let reply = bus
        .call_future(
            Some(NAME),
            PATH,
            NAME,
            "Notify",
            Some(&note.arguments()),
            Some(glib::VariantTy::new("(u)").map_err(|e| failed(&e.to_string()))?),
            gio::DBusCallFlags::NONE,
            PATIENCE_MS,
        )
        .await?;
    let (mine,) = reply
        .get::<(u32,)>()
        .ok_or_else(|| failed("the answer has no number"))?;
    let token = RefCell::new(String::new());
    let listening = Rc::new(Cell::new(None));
    let ended = Rc::clone(&listening);
    // The id of the notification is the first of every signal's arguments.
    let heard = move |bus: &gio::DBusConnection,
                      _: &str,
                      _: &str,
                      _: &str,
                      signal: &str,
                      arguments: &glib::Variant| {
        if arguments.n_children() == 0 || arguments.child_value(0).get::<u32>() != Some(mine) {
            return;
        }
        match signal {
            "ActivationToken" => {
                if let Some((_, new)) = arguments.get::<(u32, String)>() {
                    token.replace(new);
                }
            }
            "ActionInvoked" => clicked(&token.borrow()),
            "NotificationClosed" => {
                if let Some(id) = ended.take() {
                    bus.signal_unsubscribe(id);
                }
            }
            _ => {}
        }
    };
    listening.set(Some(bus.signal_subscribe(
        Some(NAME),
        Some(NAME),
        None,
        Some(PATH),
        None,
        gio::DBusSignalFlags::NONE,
        heard,
    )));
    Ok(())
}

fn failed(message: &str) -> glib::Error {
    glib::Error::new(gio::IOErrorEnum::Failed, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::test_bus::{Bus, until};

    const INTERFACE: &str = r#"<node><interface name="org.freedesktop.Notifications"><method name="Notify">
        <arg type="s" direction="in"/><arg type="u" direction="in"/><arg type="s" direction="in"/><arg type="s" direction="in"/>
        <arg type="s" direction="in"/><arg type="as" direction="in"/><arg type="a{sv}" direction="in"/><arg type="i" direction="in"/>
        <arg type="u" direction="out"/></method></interface></node>"#;

    #[test]
    fn words_are_plain_and_of_a_length_that_can_be_shown() {
        let note = Note::new("a\nb\u{7}c", &"字".repeat(500));
        assert_eq!(note.title, "a b c");
        assert_eq!(note.text, format!("{}…", "字".repeat(200)));
        let note = Note::new("", "<b>5 > 3 & \"so\"</b>");
        assert_eq!(
            note.arguments().child_value(4).str(),
            Some("&lt;b&gt;5 &gt; 3 &amp; &quot;so&quot;&lt;/b&gt;")
        );
    }

    #[test]
    fn a_desktop_is_asked_and_a_click_on_that_notification_is_heard() {
        let bus = Bus::start();
        let context = glib::MainContext::new();
        let asked = Arc::new(Mutex::new(Vec::new()));
        context
            .with_thread_default(|| {
                context.block_on(async {
                    let (desktop, ours) = (bus.connection(), bus.connection());
                    // Nobody shows notifications there.
                    let note = Note::new("Answer", "1 < 2");
                    let none = tell(&ours, &note, |_| panic!("nobody clicked")).await;
                    assert!(none.is_err());

                    let interface = gio::DBusNodeInfo::for_xml(INTERFACE).unwrap();
                    let seen = Arc::clone(&asked);
                    let registered = desktop.register_object(
                        PATH,
                        &interface.lookup_interface(NAME).unwrap(),
                        move |_, _, _, _, method, arguments, invocation| {
                            assert_eq!(method, "Notify");
                            seen.lock().unwrap().push(arguments);
                            invocation.return_value(Some(&(77u32,).to_variant()));
                        },
                        |_, _, _, _, _| ().to_variant(),
                        |_, _, _, _, _, _| false,
                    );
                    registered.unwrap();
                    bus.own(&desktop, NAME).await;

                    let clicks = Rc::new(RefCell::new(Vec::new()));
                    let heard = Rc::clone(&clicks);
                    let click = move |token: &str| heard.borrow_mut().push(token.to_owned());
                    tell(&ours, &note, click).await.unwrap();
                    {
                        let asked = asked.lock().unwrap();
                        assert_eq!(asked.len(), 1);
                        let words = |n| asked[0].child_value(n).str().map(str::to_owned);
                        assert_eq!(words(3).as_deref(), Some("Answer"));
                        assert_eq!(words(4).as_deref(), Some("1 &lt; 2"));
                        assert_eq!(asked[0].type_().as_str(), "(susssasa{sv}i)");
                    }
                    let signal = |member: &str, arguments: glib::Variant| {
                        desktop
                            .emit_signal(None, PATH, NAME, member, Some(&arguments))
                            .unwrap();
                    };
                    // The bus is told what we listen to and asked whose the name is, and what comes before its answers is not heard.
                    until(|| {
                        signal("ActionInvoked", (77u32, CLICK).to_variant());
                        !clicks.borrow().is_empty()
                    })
                    .await;
                    signal("ActivationToken", (77u32, "click-1").to_variant());
                    signal("ActionInvoked", (77u32, CLICK).to_variant());
                    let last =
                        |token: &str| clicks.borrow().last().is_some_and(|last| last == token);
                    until(|| last("click-1")).await;
                    // Before the desktop says whose click it is there is no id. What was sent is heard in its order, and is all heard now.
                    assert_eq!(clicks.take()[0], "");
                    // Of another program's notification, then of ours.
                    signal("ActionInvoked", (78u32, CLICK).to_variant());
                    signal("ActivationToken", (77u32, "click-2").to_variant());
                    signal("ActionInvoked", (77u32, CLICK).to_variant());
                    until(|| last("click-2")).await;
                    assert_eq!(*clicks.borrow(), ["click-2"]);
                    // Once it is gone, its number may be given to another.
                    signal("NotificationClosed", (77u32, 2u32).to_variant());
                    signal("ActionInvoked", (77u32, CLICK).to_variant());
                    desktop.flush_future().await.unwrap();
                    glib::timeout_future(Duration::from_millis(300)).await;
                    assert_eq!(clicks.borrow().len(), 1);
                });
            })
            .unwrap();
    }
}
