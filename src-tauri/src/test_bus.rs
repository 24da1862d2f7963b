//! A message bus of a test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gtk::glib::prelude::ToVariant as _;
use gtk::{gio, glib};

/// Ends with it.
pub(crate) struct Bus(Child, String);

impl Bus {
    pub(crate) fn start() -> Self {
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address=1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("dbus-daemon starts");
        let mut address = String::new();
        let out = daemon.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut address).unwrap();
        Self(daemon, address.trim().to_owned())
    }

    pub(crate) fn connection(&self) -> gio::DBusConnection {
        let flags = gio::DBusConnectionFlags::AUTHENTICATION_CLIENT
            | gio::DBusConnectionFlags::MESSAGE_BUS_CONNECTION;
        gio::DBusConnection::for_address_sync(&self.1, flags, None, gio::Cancellable::NONE).unwrap()
    }

    /// Gives the connection a name that others find it by.
    pub(crate) async fn own(&self, connection: &gio::DBusConnection, name: &str) {
        let (dbus, path) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");
        let owned = connection.call_future(
            Some(dbus),
            path,
            dbus,
            "RequestName",
            Some(&(name, 0u32).to_variant()),
            None,
            gio::DBusCallFlags::NONE,
            10_000,
        );
        assert_eq!(owned.await.unwrap().get::<(u32,)>(), Some((1,)));
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until it is so, while the loop goes on.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        glib::timeout_future(Duration::from_millis(10)).await;
    }
    panic!("it never was");
}
