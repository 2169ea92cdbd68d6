package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
)

var update = flag.Bool("update", false, "rewrite the recorded files")

var at = time.Date(2026, 11, 21, 10, 26, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { t := at.Add(-d); return &t }

func num(n int) *int { return &n }

func documents() map[string]Document {
	yes := true
	b := NewBoard()
	healthy := Document{
		Schema:       Schema,
		Time:         at,
		Health:       Healthy,
		Setup:        SetupReady,
		Version:      "v1",
		Cluster:      "prod-eu",
		Node:         "sca-1",
		Started:      *ago(time.Hour),
		ServingSince: ago(12 * 24 * time.Hour),
		Front:        Front{[]string{"10.0.0.1", "10.0.0.2"}, 4505, 4506, nil},
		Console:      "https://10.0.0.1:8000/console/",
		Nodes: []Node{{
			Name:    "sca-1",
			This:    true,
			Address: "10.0.0.1",
			Version: "v1",
			Role:    RoleVoter,
			State:   "ready",
			Master:  "ok",
			Proxy:   "ok",
			Storage: "ok",
			Minions: num(1204),
			Clock:   "synced",
		}},
		Services: []Service{{Name: "master", State: "running", Message: "running", Since: *ago(time.Hour), PID: 12},
			{
				Name:     "lb",
				State:    "running",
				Message:  "running",
				Since:    *ago(50 * time.Minute),
				PID:      13,
				Restarts: 2,
				LastExit: "exit code 1",
			}},
		Minions: Minions{Accepted: 1300, Pending: 4, Connected: num(1204)},
		Master:  &Master{Written: *ago(time.Second), Requests: 10, Returns: 5, Jobs: 2, OldestRequestMillis: 40},
		Storage: Storage{
			Kind:        "local",
			Path:        "/var/lib/saltern/cluster",
			Total:       100 << 30,
			Free:        61 << 30,
			FreePercent: 61,
			InodesFree:  90,
		},
		Clock:    Clock{Synchronised: &yes},
		Problems: []Problem{},
	}

	down := healthy
	down.Master = nil
	b.Update(at.Add(-4*time.Minute), []Finding{{Code: MasterDown}})
	down.Problems = b.Update(at, []Finding{
		{Code: MasterDown, Cause: "exit code 1, 5 starts in a row failed; last line: address already in use"},
		{Code: MasterSilent}, {Code: NoBackend}, {Code: DiskLow, Subject: "/var", Cause: "8 % free"},
		{
			Code:    ChildrenAsRoot,
			Subject: "salt-master",
		}, {Code: ChildrenAsRoot, Subject: "applianced lb", Cause: "of its own"}})

	down.Health = Worst(down.Problems)
	down.ServingSince = nil
	down.Setup = SetupWaiting
	down.Exit = down.Health.Exit()
	down.Nodes = []Node{
		{
			Name:    "sca-1",
			This:    true,
			Address: "10.0.0.1",
			Version: "v1",
			Role:    RoleVoter,
			State:   "starting",
			Master:  "down",
			Proxy:   "ok",
			Storage: "ok",
			Clock:   "synced",
		},
		{
			Name:     "sca-3",
			Address:  "10.0.0.3",
			Role:     RoleVoter,
			State:    "unreachable",
			Master:   "?",
			Proxy:    "?",
			Storage:  "?",
			LastSeen: ago(4 * time.Minute),
		},
	}

	down.Services = []Service{{
		Name:     "master",
		State:    "backoff",
		Message:  "ended after 0.3s: exit code 1; next start in 8s",
		Since:    *ago(3 * time.Second),
		Restarts: 5,
	}}

	busy := healthy
	busy.Master = &Master{Written: *ago(time.Second), OldestRequestMillis: 65_000, PillarErrorMinions: 2}
	busy.Problems = NewBoard().Update(at,
		[]Finding{
			{Code: DiskFull, Subject: "/var", Cause: "nothing is free"},
			{Code: ReturnsNotKept, Cause: "no space left"},
			{Code: PillarErrors, Cause: "minion web1: Rendering SLS 'x' failed"},
		})

	busy.Health = Worst(busy.Problems)
	busy.Exit = busy.Health.Exit()

	fresh := Document{
		Schema:   Schema,
		Time:     at,
		Setup:    SetupNew,
		Node:     "sca-1",
		Problems: NewBoard().Update(at, []Finding{{Code: NotConfigured, Subject: "/etc/saltern/appliance.yaml"}}),
	}

	fresh.Health = Worst(fresh.Problems)
	fresh.Exit = fresh.Health.Exit()
	forming := down
	forming.Setup = SetupForming
	forming.SetupStep = &SetupStep{
		Number:  6,
		Of:      7,
		Name:    "prepare the shared storage",
		Message: "waits for the shared volume to take writes (brick of sca-1 is not started)",
	}

	forming.Problems, forming.Nodes = NewBoard().Update(at, nil), forming.Nodes[:1]
	return map[string]Document{
		"setting-up":   forming,
		"healthy":      healthy,
		"down":         down,
		"full":         busy,
		"unconfigured": fresh,
	}
}

func TestText(t *testing.T) {
	for name, d := range documents() {
		var b bytes.Buffer
		if err := WriteText(&b, d); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", b.Bytes())
	}
}

// The JSON form is a promise: a change of the recorded file is a change of
// the promise.
func TestJSON(t *testing.T) {
	for name, d := range documents() {
		var b bytes.Buffer
		if err := WriteJSON(&b, d); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", b.Bytes())
		var again Document
		if err := json.Unmarshal(b.Bytes(), &again); err != nil || again.Health != d.Health || again.Schema != Schema {
			t.Errorf("%s does not read back: %v", name, err)
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", name, got)
	}
}

func TestBoardHidesConsequences(t *testing.T) {
	b := NewBoard()
	all := []Finding{
		{Code: NoBackend},
		{Code: MasterSilent},
		{Code: MasterDown},
		{Code: PortInUse, Subject: "127.0.0.1:14506"},
		{Code: ClockUnsynced},
	}

	b.Update(at, all)
	got := b.Update(at.Add(time.Minute), all)
	if len(got) != 2 || got[0].Code != PortInUse || got[1].Code != ClockUnsynced {
		t.Fatalf("%+v", got)
	}

	if want := []Code{NoBackend, MasterSilent, MasterDown}; !slices.Equal(got[0].Hides, want) {
		t.Errorf("hides %v, want %v", got[0].Hides, want)
	}

	if !got[0].Since.Equal(at) || Worst(got) != NotServing {
		t.Errorf("since %v, health %v", got[0].Since, Worst(got))
	}

	// The cause ends: its consequence is shown, with its own age.
	got = b.Update(at.Add(2*time.Minute), all[1:3])
	if len(got) != 1 || got[0].Code != MasterDown || !got[0].Since.Equal(at) {
		t.Errorf("%+v", got)
	}
}

// A node that is away hides what follows from that, and nothing of another node.
func TestBoardKeepsNodesApart(t *testing.T) {
	b := NewBoard()
	all := []Finding{
		{Code: NodeUnreachable, Subject: "n2"},
		{Code: StoragePeerAway, Subject: "n2"},
		{Code: StoragePeerAway, Subject: "n3"},
		{Code: NodeNotServing, Subject: "n3"},
	}

	b.Update(at, all)
	got := b.Update(at.Add(time.Minute), all)
	want := []string{"SCA-104 n2 [SCA-426]", "SCA-105 n3 []", "SCA-426 n3 []"}
	for i, p := range got {
		if text := fmt.Sprintf("%s %s %s", p.Code, p.Subject, p.Hides); len(got) != len(want) || text != want[i] {
			t.Errorf("%d of %d: %s", i, len(got), text)
		}
	}
}

func TestBoardWaitsBeforeShowing(t *testing.T) {
	b := NewBoard()
	f := []Finding{{Code: NoBackend}}
	for _, c := range []struct {
		after time.Duration
		found []Finding
		want  int
	}{
		{0, f, 0},
		{2 * time.Second, f, 0},
		{3 * time.Second, f, 1},
		{4 * time.Second, nil, 0},
		{5 * time.Second, f, 0},
		{8 * time.Second, f, 1},
	} {
		if got := b.Update(at.Add(c.after), c.found); len(got) != c.want {
			t.Errorf("after %s: %d shown, want %d", c.after, len(got), c.want)
		}
	}
}

func TestKindsAreComplete(t *testing.T) {
	seen := map[Code]bool{}
	format := regexp.MustCompile(`^SCA-[0-6]\d\d$`)
	for _, k := range Kinds() {
		if seen[k.Code] || !format.MatchString(string(k.Code)) || k.Title == "" || rankOf(k.Severity) < 0 {
			t.Errorf("kind %+v", k)
		}
		seen[k.Code] = true
	}

	for _, k := range Kinds() {
		for _, d := range k.DependsOn {
			if !seen[d] || d == k.Code {
				t.Errorf("%s depends on %s", k.Code, d)
			}
		}

		if !slices.IsSortedFunc(Kinds(),
			func(a, b Kind) int { return strings.Compare(string(a.Code), string(b.Code)) }) {
			t.Fatal("not ordered by code")
		}
	}
}

// Text from a child or a minion must not reach a terminal as a command, nor
// make a line of its own.
func TestAttack26TerminalEscapes(t *testing.T) {
	d := documents()["down"]
	d.Services[0].Message = "x\x1b[2J\x1b]0;evil\x07y\u009b31m"
	d.Problems[0].Cause = "a\rb\x1b[31m"
	d.Nodes[0].Name = "n\x1bcode"
	var b bytes.Buffer
	if err := WriteText(&b, d); err != nil {
		t.Fatal(err)
	}

	for _, r := range b.String() {
		if r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 {
			t.Fatalf("control character %q in:\n%q", r, b.String())
		}
	}

	if strings.Contains(b.String(), "evil") {
		t.Error("title sequence was printed")
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1:               "0s",
		59 * time.Second: "59s",
		61 * time.Second: "1m",
		47 * time.Hour:   "47h",
		49 * time.Hour:   "2d",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %s, want %s", d, got, want)
		}
	}

	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 100 << 30: "100 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %s, want %s", n, got, want)
		}
	}

	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}

	for h, want := range map[Health]int{Healthy: 0, Degraded: 2, NotServing: 3, Unconfigured: 4, "": 1} {
		if h.Exit() != want {
			t.Errorf("%q exits %d, want %d", h, h.Exit(), want)
		}
	}
}

// TestAPIIsServed: who serves Salt's API, and why nobody does. (m9)
func TestAPIIsServed(t *testing.T) {
	for want, api := range map[string]FrontAPI{
		"served by n1, n2":   {Nodes: []string{"n1", "n2"}},
		"served by no node":  {},
		"and is starting":    {Starting: true},
		"served by n2 alone": {Nodes: []string{"n2 alone"}, Starting: false},
	} {
		if got := api.served(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

// TestReturnersAndEngines: each is shown; where room is short, those with trouble.
func TestReturnersAndEngines(t *testing.T) {
	d := Document{Master: &Master{
		Returners: []control.Returner{
			{Name: "rawfile_json", Waiting: 3000, Lost: 20, Refused: 1, Error: "no space"},
			{Name: "own"},
		},
		Engines: []control.Engine{
			{Name: "webhook", State: "running"},
			{Name: "thorium", State: "elsewhere"},
			{Name: "script", State: "waiting", Error: "killed"},
		},
	}}

	for brief, want := range map[brevity]string{
		whole:         "Returners rawfile_json, 3,000 wait, takes none, did not get 21; own, 0 wait\nEngines  webhook running; thorium not on this node; script waiting, has ended before",
		briefServices: "Returners rawfile_json, 3,000 wait, takes none, did not get 21\nEngines  script waiting, has ended before",
	} {
		text := wording{d: d, brief: brief}
		text.addPython(d.Master)
		if got := strings.Join(text.lines, "\n"); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

func TestUpgradeLine(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for want, u := range map[string]Upgrade{
		"Sun 02:00-04:00 UTC, opens in 3d": {Until: now.Add(86 * time.Hour)},
		"Sun 02:00-04:00 UTC, open for another 59m; this node installs version 2": {
			Open:   true,
			Until:  now.Add(59 * time.Minute),
			Doing:  "installs version 2",
			Result: "version 2: away",
		},
		"Sun 02:00-04:00 UTC, open for another 59m; last: version 2: away": {
			Open:   true,
			Until:  now.Add(59 * time.Minute),
			Result: "version 2: away",
		},
		"Sun 02:00-04:00 UTC, opens in 0s; last: version 2: closed": {
			Until:  now.Add(-time.Minute),
			Result: "version 2: closed",
		},
	} {
		u.Window = "Sun 02:00-04:00"
		if got := u.oneLine(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}

		words := wording{d: Document{Time: now, Upgrade: &u}}
		words.addKeys()
		if !slices.Contains(words.lines, "Upgrade  "+want) {
			t.Errorf("no %q in %q", want, words.lines)
		}
	}
}

func TestBackupLine(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	last := &BackupFile{Node: "n2", Time: now.Add(-9 * time.Hour), Bytes: 3 << 20}
	for want, b := range map[string]Backup{
		"none yet; the next one is due":                 {Next: now},
		"9h old, made by n2, 3.0 MiB; next in 15h":      {Last: last, Next: now.Add(15 * time.Hour)},
		"9h old, made by n2, 3.0 MiB; n1 makes one now": {Last: last, Next: now, Making: &BackupMaker{Node: "n1"}},
		"0s old, made by n2, 0 B; the next one is due": {Last: &BackupFile{
			Node:  "n2",
			Time:  now.Add(time.Hour),
			Bytes: -1,
		}},
	} {
		if got := b.oneLine(now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRemovedNodeServesNobody: a node that was removed names no address for minions (m30).
func TestRemovedNodeServesNobody(t *testing.T) {
	d := Document{
		Health: NotServing,
		Node:   "n2",
		Front:  Front{Addresses: []string{"10.0.0.2"}, PublishPort: 4505, RequestPort: 4506},
	}

	written := func() string {
		t.Helper()
		var b strings.Builder
		if err := WriteText(&b, d); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}

	if text := written(); !strings.Contains(text, "minions use 10.0.0.2") {
		t.Errorf("a node that serves:\n%s", text)
	}

	d.Problems = []Problem{{Code: NodeRemoved, Severity: Fatal, Title: "this node was removed from the cluster"}}
	if text := written(); strings.Contains(text, "minions use") {
		t.Errorf("a removed one:\n%s", text)
	}
}
