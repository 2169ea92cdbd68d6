package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"saltern/internal/rpc"
)

// TestMethodsAreComplete walks the table: whoever adds a method says how large a request and
// how long the work may be, what the audit record says, and what a user types, or why not.
func TestMethodsAreComplete(t *testing.T) {
	rows := Table.Rows()
	if len(rows) < 50 {
		t.Fatalf("only %d methods", len(rows))
	}

	for _, row := range rows {
		t.Run(row.Route, func(t *testing.T) {
			verb, path, _ := strings.Cut(row.Route, " ")
			if !strings.HasPrefix(path, "/v1/") {
				t.Error("the path has no version")
			}
			if row.Takes <= 0 || row.Takes > 2*time.Minute {
				t.Errorf("it takes %s", row.Takes)
			}
			if row.Bound < 0 || row.Bound > maxBody+1 || verb == http.MethodGet && row.Bound > 0 {
				t.Errorf("a body of %d bytes", row.Bound)
			}

			if (row.Audit == "") == (row.Unaudited == "") {
				t.Errorf("action %q, and none because %q", row.Audit, row.Unaudited)
			}
			if verb != http.MethodGet && row.Unaudited == onlyLooks && row != &PingNode.Row {
				t.Error("it changes something and is not written down")
			}
			if row.GoesOn && row.Audit == "" {
				t.Error("work that goes on is not written down")
			}

			if (row.Command == "") == (row.NoCommand == "") {
				t.Errorf("command %q, and none because %q", row.Command, row.NoCommand)
			}
			if row.AtOnce > 0 && row.Busy == "" {
				t.Error("callers above the bound hear no reason")
			}
		})
	}
}

// TestAbsentMethodsSayWhatTheyNeed: a machine that is not set up registers nothing of a
// cluster, and answers all the same.
func TestAbsentMethodsSayWhatTheyNeed(t *testing.T) {
	everywhere := []*rpc.Row{&ReadStatus.Row, &ReadConfig.Row, &SetConfig.Row, &CheckConfig.Row, &Reload.Row}
	absent := []*rpc.Row{&ReadOutput.Row, &ReadLog.Row, &RestartService.Row, &ReadTurn.Row, &ReadOptionsRoll.Row, &ReadUpgrade.Row}
	for _, row := range Table.Rows() {
		answers := 0
		for _, own := range append(everywhere, absent...) {
			if own == row {
				answers++
			}
		}
		if (answers > 0) == (row.Needs != nil) {
			t.Errorf("%s: needs %v", row.Route, row.Needs)
		}
	}

	path, _ := serve(t, t.TempDir())
	c := NewClient(path)
	for what, want := range map[string]struct {
		err  error
		text string
	}{
		"drain":  {c.Drain(t.Context(), "n2", false), "not possible now: this node is not part of a cluster"},
		"reset":  {c.Reset(t.Context()), "not possible now: this node is not set up; next: applianced setup"},
		"backup": {c.MakeBackup(t.Context()), errNoBackups.Error()},
	} {
		if want.err == nil || want.err.Error() != want.text {
			t.Errorf("%s: %v", what, want.err)
		}
	}

	_, err := c.Storage(t.Context())
	if err == nil || err.Error() != errNoVolume.Error() {
		t.Errorf("storage: %v", err)
	}
	turn, err := c.Turn(t.Context())
	if err != nil || !turn.Alone {
		t.Errorf("turn: %+v %v", turn, err)
	}
	_, err = c.Log(t.Context(), "lb", LogQuery{})
	if err == nil || err.Error() != `"lb": no such service (this node is not set up; next: applianced setup)` {
		t.Errorf("log: %v", err)
	}
}
