package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"saltern/cmd/salt/optparse"
	"saltern/master/client"
)

// That files are of before is written once for each node and state of its files.
func TestOldFilesAreWritten(t *testing.T) {
	var errOut bytes.Buffer
	tl := &tool{env: &env{stderr: &errOut}, p: &optparse.Parser{Prog: "salt"}}
	say := tl.oldFiles()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, old := range []client.OldFiles{
		{Minion: "web1", Node: "n1", AsOf: at, Why: "the shared volume does not answer"},
		{Minion: "web2", Node: "n1", AsOf: at, Why: "the shared volume does not answer"},
		{Minion: "web3", Node: "n2", Why: "no such luck"},
	} {
		say(old)
	}
	want := "salt: not the newest files: node n1 serves web1 and others files and pillars of 2026-11-23T12:00:00Z, without what was written since: the shared volume does not answer; next: applianced storage status\n" +
		"salt: not the newest files: node n2 serves web3 and others files and pillars of before, without what was written since: no such luck; next: applianced storage status\n"
	if got := errOut.String(); got != want {
		t.Errorf("got\n%s", got)
	}
	for i := range 2 * maxOldStates {
		say(client.OldFiles{Minion: "m", Node: "n", AsOf: at.Add(time.Duration(i+1) * time.Second)})
	}
	if n := strings.Count(errOut.String(), "\n"); n != maxOldStates {
		t.Errorf("%d lines", n)
	}
}
