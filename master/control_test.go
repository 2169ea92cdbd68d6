package master_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"saltern/internal/control"
	"saltern/internal/rpc"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/controltest"
)

var update = flag.Bool("update", false, "rewrite the recorded files of package control")

// The supervisors read what a master writes to its status file, and their tests use the same
// recorded file.
func TestRecordedStatus(t *testing.T) {
	r := mastertest.Start(t, "")
	r.AcceptedMinion("web1", "min6")
	check.Must(t, r.Parts.Keys.Put("web2", keys.Pending, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))))
	r.Parts.Pillars.NoteFault("web1", "Rendering SLS 'broken' failed. Please see master log for details.")
	r.Parts.Problems.Set(control.JobCacheFault,
		errors.New("write /var/lib/saltern/cache/jobs.journal: no space left on device"))
	var text []byte
	await.That(t, "the status tells of the problem", func() bool {
		text, _ = os.ReadFile(r.Path("cache", control.StatusFile))
		s, err := control.ParseStatus(text)
		return err == nil && s.PillarFaulty == 1 && len(s.Problems) == 1 && s.Accepted == 1 && s.Pending == 1
	})

	text = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`).ReplaceAll(text, []byte(`"2026-11-23T12:00:00Z"`))
	text = regexp.MustCompile(`"(pid)":\d+`).ReplaceAll(text, []byte(`"$1":7`))
	text = regexp.MustCompile(`"id":"[^"]*"`).ReplaceAll(text, []byte(`"id":"m1"`))
	controltest.Recorded(t, "status.json", text, *update)
}

// The faults of the storage, as the supervisor's test has written them.
func TestRecordedConditions(t *testing.T) {
	path := controltest.Path(t, "conditions.json")
	file, err := os.Stat(path)
	check.Must(t, err)
	list, err := control.ReadConditions(path, file.ModTime())
	if err != nil || len(list) != 2 || list[0] != (control.Condition{
		Code:     "SCA-416",
		Title:    "the shared volume is full",
		Cause:    "0.1 %",
		Next:     "delete",
		NoWrites: true,
	}) ||
		list[1].Code != "SCA-427" || list[1].NoWrites {
		t.Errorf("%+v %v", list, err)
	}
}

// The supervisor's client connects to a running master: the list of minions is that of the recorded
// file, and the master refuses an impossible request with a code.
func TestControlSocket(t *testing.T) {
	r := mastertest.Start(t, "")
	r.AcceptedMinion("web1", "min6")
	check.Must(t, r.Parts.Keys.Put("web2", keys.Pending, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min7"))))
	var c *control.Client
	var got control.Minions
	await.That(t, "the socket is served", func() (ok bool) {
		c = control.NewClient(filepath.Join(r.Parts.Options.SockDir, control.Socket), os.Geteuid())
		var err error
		got, err = c.Minions(t.Context(), true)
		return err == nil
	})

	for i := range got.Minions {
		if got.Minions[i].Seen > 0 {
			got.Minions[i].Seen = 1764000000.25
		}
	}

	if got.Began() == nil {
		t.Error("there is no record of who was heard")
	}

	got.Since = 1763000000
	got.Subscriptions["10.0.0.9"] = 2
	b, err := json.Marshal(got)
	check.Must(t, err)
	controltest.Recorded(t, "minions.json", b, *update)
	var refused *rpc.Error
	for _, err := range []error{c.RemoveMember(t.Context(), control.Removal{ID: "10.0.0.2"}),
		c.StageSecret(t.Context()), c.CommitSecret(t.Context(), "k12")} {
		if !errors.As(err, &refused) || refused.Code != rpc.CodeNoCluster {
			t.Errorf("alone: %v", err)
		}
	}
}
