// Package e2e holds the tests that use real components: applianced, our
// master and command line programs, unmodified salt-minions. They need the
// build tag e2e, `make build` and `make deps`; `make e2e` does all of it.
package e2e
