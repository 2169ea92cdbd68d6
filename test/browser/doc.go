// Package browser holds tests of what is in browsers: the console, and SaltGUI on
// salt-api, in a real Chromium beside real nodes with real minions; and the pictures that
// Chromium makes of the console's pages. It is a module of
// its own, so that what drives Chromium is no dependency of the programs. `make
// test-browser`, a part of `make test`, and by hand `make test-saltgui` run it.
package browser
