package restapi

import (
	"strings"
	"testing"

	"saltern/master/restapi/internal/console"
)

// TestFramesOfARun: the page of a run on the master gets the events of that run alone, and large ones
// without their data.
func TestFramesOfARun(t *testing.T) {
	const run = "20261124155900000001"
	want := &console.Events{Run: run}
	for tag, sent := range map[string]bool{
		"salt/run/" + run + "/args":                         true,
		"salt/run/" + run + "/ret":                          true,
		"salt/wheel/" + run + "/ret":                        true,
		"salt/job/" + run + "/prog/m1_master/0":             true,
		"salt/job/" + run + "/ret/web1":                     false,
		"salt/run/" + run + "0/ret":                         false,
		"salt/run/20261124155900000002/ret":                 false,
		"my/salt/run/" + run + "/ret":                       false,
		"salt/run/" + run:                                   false,
		"salt/job/20261124155900000002/prog/m1_master/0":    false,
		"salt/run/20261124155900000002/" + run + "/ret":     false,
		"salt/run/" + strings.Repeat("9", 20) + "/progress": false,
	} {
		frame := "tag: " + tag + "\ndata: {}\n\n"
		if got := pickFrame(frame, want); (got == frame) != sent || !sent && got != "" {
			t.Errorf("%s: %q", tag, got)
		}
	}

	large := "tag: salt/run/" + run + "/ret\ndata: " + strings.Repeat("x", maxPageEvent) + "\n\n"
	if got := pickFrame(large, want); got == "" || len(got) > 200 {
		t.Errorf("%d bytes", len(got))
	}
}
