package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/cmd/salt/optparse"
	"saltern/internal/control"
	"saltern/internal/localsock"
	"saltern/master/client"
	"saltern/master/conf"
)

// That files are of before is written once for each node and state of its files.
func TestOldFilesAreWritten(t *testing.T) {
	var errOut bytes.Buffer
	tl := &tool{env: &env{stderr: &errOut}, optionParser: &optparse.Parser{Prog: "salt"}}
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
		"salt: not the newest files: node n2 serves web3 and others files and pillars of an earlier time, without what was written since: no such luck; next: applianced storage status\n"
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

// door is a supervisor's, as far as this program asks it.
type door struct {
	control.Supervisor
	answer control.Newest
	asked  int
}

func (d *door) Newest(context.Context, control.NewestQuestion) (control.Newest, error) {
	d.asked++
	return d.answer, nil
}

// What Python's salt-run reads is copied before it begins; when that is not possible, standard
// error says so.
func TestFilesAreRenewedForPython(t *testing.T) {
	dir, err := os.MkdirTemp("", "door") // short: the path of a socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	at := filepath.Join(dir, "door")
	ln, err := localsock.Listen(at, 0o600, -1)
	if err != nil {
		t.Fatal(err)
	}

	d := &door{}
	served := control.ServeDoor(ln, os.Geteuid(), d, slog.New(slog.DiscardHandler))
	defer served.Close()

	var errOut bytes.Buffer
	tl := &tool{env: &env{stderr: &errOut}, optionParser: &optparse.Parser{Prog: "salt-run"}, cfg: &conf.Master{}}
	tl.renewFiles(t.Context())
	tl.cfg.Door = at
	tl.cfg.Node = "n1"
	tl.renewFiles(t.Context())

	if d.asked != 1 || errOut.Len() > 0 {
		t.Errorf("asked %d times: %s", d.asked, errOut.String())
	}

	d.answer = control.Newest{Why: "the shared volume does not answer"}
	tl.renewFiles(t.Context())
	served.Close()
	tl.renewFiles(t.Context())
	got := errOut.String()
	if n := strings.Count(got,
		"salt-run: not the newest files: node n1 reads files and pillars of an earlier time"); n != 2 ||
		!strings.Contains(got, "does not answer; next:") {
		t.Errorf("said %d times: %s", n, got)
	}
}
