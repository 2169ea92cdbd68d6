package observe

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/internal/control"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
	"saltern/test/controltest"
)

// The findings of the file that the master's test has written.
func TestMasterReportsRecorded(t *testing.T) {
	s, err := control.ReadStatus(controltest.Path(t, "status.json"))
	if err != nil {
		t.Fatal(err)
	}

	f := facts{
		now:        s.Written.Add(control.StatusStale),
		slowAnswer: slowAnswer{master: s},
		services:   []service.Info{{Name: status.MasterService, State: service.Running, PID: s.PID}},
	}

	got := masterReports(f)
	if len(got) != 2 || got[0].Code != status.ReturnsNotKept ||
		!strings.Contains(got[0].Cause, "no space left on device") ||
		got[1].Code != status.PillarErrors || !strings.Contains(got[1].Cause,
		"minion web1: Rendering SLS 'broken' failed") {
		t.Errorf("%+v", got)
	}

	if s.Accepted != 1 || s.Pending != 1 || s.Requests == 0 {
		t.Errorf("%+v", s)
	}
}

// Two masters that serve and do not reach each other are told; one of a node that
// does not serve is told of the node.
func TestApart(t *testing.T) {
	others := []status.Node{
		{Name: "n2", Address: "10.0.0.2", State: "ready", Master: "ok"},
		{Name: "n3", Address: "10.0.0.3", State: "ready", Master: "ok"},
		{Name: "n4", Address: "10.0.0.4", State: "unreachable"},
		{Name: "n5", Address: "10.0.0.5", State: "ready", Master: "down"},
	}

	got := apartFindings([]control.Apart{
		{Peer: "10.0.0.2", Through: "10.0.0.3", Error: "i/o timeout"},
		{Peer: "10.0.0.3"},
		{Peer: "10.0.0.4"},
		{Peer: "10.0.0.5"},
		{Peer: "10.0.0.9"},
	},
		others)

	want := []status.Finding{
		{Code: status.MastersApart, Subject: "n2", Cause: "i/o timeout; what they have for each other goes through n3"},
		{
			Code:    status.MastersApart,
			Subject: "n3",
			Cause:   "no connection; jobs of one do not reach the minions of the other",
		},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// The file is looked at with the other slow things; one that is half written
// does not unmake the last good one.
func TestSlowFactsReadTheMaster(t *testing.T) {
	dir := t.TempDir()
	s := &slowFacts{paths: []string{dir}, pki: dir, report: filepath.Join(dir, "status.json")}
	look := func(text string) *control.Status {
		t.Helper()
		if text != "" {
			if err := os.WriteFile(s.report, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		s.startLook()
		return s.lastAnswers(s.last).master
	}

	if m := look(""); m != nil {
		t.Errorf("without a file: %+v", m)
	}

	if m := look(`{"schema":1,"pid":5}`); m == nil || m.PID != 5 {
		t.Errorf("%+v", m)
	}

	if m := look(`{"schema":1,"p`); m == nil || m.PID != 5 {
		t.Errorf("half a file: %+v", m)
	}

	if err := os.Remove(s.report); err != nil {
		t.Fatal(err)
	}

	if m := look(""); m != nil {
		t.Errorf("the file is gone: %+v", m)
	}
}
