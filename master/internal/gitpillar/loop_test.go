package gitpillar

import (
	"errors"
	"testing"
)

// What is told of a remote has no password, and is one line.
func TestText(t *testing.T) {
	remote := func(url string) error {
		return &RemoteError{Remote: "master " + url, Text: "fatal: unable to access '" + url + "/':\nCould not resolve host"}
	}
	const url, shown = "https://user:TOPSECRET@git.example.com/p.git", "https://user:(hidden)@git.example.com/p.git"
	for want, err := range map[string]error{
		"master " + shown + ": fatal: unable to access '" + shown + "/': Could not resolve host":              errors.Join(remote(url)),
		"master " + shown + ": fatal: unable to access '" + shown + "/': Could not resolve host (and 2 more)": errors.Join(remote(url), remote("x"), remote("y")),
		"no Python": errors.New("no Python"),
	} {
		if got := text(err); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
