// Package browser holds tests of what is in browsers: the console, and SaltGUI on
// salt-api, in a real Chromium beside a real node with a real minion. It is a module of
// its own, so that what drives Chromium is no dependency of the programs. `make
// test-browser` and `make test-saltgui` run it, by hand.
package browser
