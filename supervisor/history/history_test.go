package history

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
)

var at = time.Date(2026, 11, 21, 22, 44, 0, 0, time.UTC)

func TestCompare(t *testing.T) {
	seen := at.Add(-5 * time.Second)
	first := status.Document{Time: at.Add(-time.Hour), Health: status.Healthy, Node: "n1", Version: "1.0.0",
		Nodes: []status.Node{
			{Name: "n1", This: true, State: "ready"},
			{Name: "n3", State: "ready", Version: "1.0.0"},
		},
		Virtual: &status.Virtual{Nodes: []string{"n3"}},
		Services: []status.Service{{
			Name:   "master",
			Events: []status.Event{{Time: at.Add(-2 * time.Hour), State: "running", Message: "running"}},
		}}}

	away := first
	away.Time, away.Health = at, status.Degraded
	away.Problems = []status.Problem{{
		Code:    status.NodeUnreachable,
		Subject: "n3",
		Title:   "node n3 is unreachable",
		Cause:   "no route\nto host",
		Since:   at.Add(-10 * time.Second),
	}}

	away.Nodes = []status.Node{
		{Name: "n1", This: true, State: "starting"},
		{Name: "n3", State: "unreachable", Version: "1.0.0", LastSeen: &seen},
	}

	away.Virtual = &status.Virtual{Nodes: []string{"n1"}}
	away.Services = []status.Service{{Name: "master", Events: append(slices.Clone(first.Services[0].Events),
		status.Event{
			Time:    at.Add(-time.Second),
			State:   "backoff",
			Message: "ended after 5m: exit code 1; next start in 500ms",
		},
		status.Event{Time: at, State: "starting", Message: "starting"})}}

	back := away
	back.Time = at.Add(7 * time.Minute)
	back.Health = status.Healthy
	back.Problems = nil
	back.Nodes = []status.Node{
		{Name: "n1", This: true, State: "ready"},
		{Name: "n3", State: "ready", Version: "1.1.0"},
		{Name: "n4", State: "joining"},
	}

	back.Backup = &status.Backup{}
	gone := back
	gone.Nodes = back.Nodes[:2]
	gone.Backup = &status.Backup{Last: &status.BackupFile{Name: "b.age", Node: "n3", To: "/mnt/nas", Bytes: 3 << 20}}

	var got []string
	var old *status.Document
	for _, d := range []status.Document{first, first, away, away, back, gone, gone} {
		for _, e := range compare(old, d) {
			got = append(got,
				fmt.Sprintf("%s %s %s %s %s", e.Time.Format("15:04:05"), e.Kind, e.Code, e.Subject, e.Text))
		}
		old = &d
	}

	want := []string{
		"20:44:00 service  master running",
		"21:44:00 start  n1 started, version 1.0.0: healthy",
		"22:43:59 service  master ended after 5m: exit code 1; next start in 500ms",
		"22:44:00 health  n1 degraded (was healthy)",
		"22:44:00 problem SCA-104 n3 node n3 is unreachable: no route; to host",
		"22:44:00 node  n3 unreachable (was ready)",
		"22:44:00 virtual   the virtual address is on n1 (was on n3)",
		"22:51:00 health  n1 healthy (was degraded)",
		"22:51:00 over SCA-104 n3 over after 7m: node n3 is unreachable",
		"22:51:00 node  n3 ready (was unreachable since 22:43:55 UTC)",
		"22:51:00 node  n3 version 1.1.0 (was 1.0.0)",
		"22:51:00 node  n4 belongs to the cluster: joining",
		"22:51:00 node  n4 belongs to the cluster no more",
		"22:51:00 backup  n3 a backup was made: b.age in /mnt/nas, 3.0 MiB",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What a node does by itself in the upgrade window is told, once each.
func TestUpgradeEvents(t *testing.T) {
	of := func(doing, result string) status.Document {
		return status.Document{Time: at, Node: "n1", Upgrade: &status.Upgrade{Doing: doing, Result: result}}
	}
	var got []string
	old := of("", "")
	for _, d := range []status.Document{of("", ""), of("installs version 2", ""),
		of("installs version 2", ""), of("", "version 2: closed"), of("", "version 2: closed"),
		{Time: at}} {
		for _, e := range compare(&old, d) {
			got = append(got, string(e.Kind)+" "+e.Subject+" "+e.Text)
		}
		old = d
	}

	want := []string{"upgrade n1 the upgrade window is open: this node installs version 2 on all nodes",
		"upgrade n1 the upgrade by the window has ended: version 2: closed"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBook: events survive a restart and a torn line, in bounded space.
func TestBook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	if events, err := newBook(path).Last(Query{Last: 5}); err != nil || len(events) != 0 {
		t.Fatalf("%v %v", events, err)
	}

	for i := range 4000 {
		e := Event{
			Time: at.Add(time.Duration(i) * time.Second),
			Kind: Problem,
			Text: fmt.Sprint(i, strings.Repeat("x", 300)),
		}

		if err := newBook(path).Append([]Event{e}); err != nil {
			t.Fatal(err)
		}

		if i == 3990 {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = f.WriteString("{\"time\": \"2026-\n")
			f.Close()
		}
	}

	for _, c := range []struct {
		n     int
		since time.Time
		want  int
	}{{3, time.Time{}, 3}, {20, at.Add(3985 * time.Second), 15}, {20, at.Add(time.Hour * 9), 0}} {
		events, err := newBook(path).Last(Query{c.n, c.since})
		if err != nil || len(events) != c.want {
			t.Fatalf("%d events, want %d: %v", len(events), c.want, err)
		}
		if c.want > 0 && !strings.HasPrefix(events[c.want-1].Text, "3999") {
			t.Errorf("%+v", events)
		}
	}

	for _, p := range []string{path, path + ".1"} {
		if fi, err := os.Stat(p); err != nil || fi.Size() > maxFile+1000 {
			t.Errorf("%v %v", fi, err)
		}
	}
}
