package member

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/layout"
	"saltern/supervisor/marks"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// diskNode is the part of a node that knows of its disk: n1 of three, whose others answer
// what the test says.
type diskNode struct {
	*witness
	t      *testing.T
	dir    string
	now    time.Time
	volume *storage.Manager
}

func certificateOf(i int) string { return fmt.Sprintf("%064x", i) }

// startDiskNode starts n1 with what is on the disk in dir.
func startDiskNode(t *testing.T, dir string, kind string, now time.Time) *diskNode {
	t.Helper()
	n := &diskNode{t: t, dir: dir, now: now}
	s := &settings.Settings{Node: "n1", DataDir: filepath.Join(dir, "data"), RuntimeDir: t.TempDir()}
	s.Storage.Kind = kind
	s.Storage.Volume = "cluster"
	s.Storage.Bricks = filepath.Join(dir, "bricks")
	n.volume = storage.New(storage.FromSettings(s, "/bin/false", layout.Account{}, slog.New(slog.DiscardHandler)))
	env := Env{
		Settings: s,
		Log:      slog.New(slog.DiscardHandler),
		Now:      func() time.Time { return n.now },
	}

	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}

	k, err := nodes.OpenKeeper(s.DataDir, filepath.Join(dir, "shared"))
	if err != nil {
		t.Fatal(err)
	}

	table := nodes.Table{Version: 3, Cluster: "c", KeyHash: strings.Repeat("ab", 32)}
	for i := 1; i <= 3; i++ {
		table.Nodes = append(table.Nodes,
			nodes.Node{Name: fmt.Sprintf("n%d", i), Address: fmt.Sprintf("127.0.70.%d", i), State: nodes.Member,
				Certificate: certificateOf(i), Storage: "data", Brick: filepath.Join(s.Storage.Bricks, "cluster-1")})
	}

	if _, err := k.Offer(table); err != nil {
		t.Fatal(err)
	}

	p := &peers{env: env, keeper: k, views: map[string]*peerView{}}
	w, err := newWitness(env, certificateOf(1), fmt.Sprintf("start%d", now.Unix()), k, p)
	if err != nil {
		t.Fatal(err)
	}

	n.witness = w
	return n
}

// answers has another node answer that it serves a good copy, and what it remembers.
func (n *diskNode) answers(i int, memory marks.Memory) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := marks.Report{Start: fmt.Sprintf("other%d", i), Copy: true, Serving: true, Memory: memory}
	n.reports[certificateOf(i)] = &nodeAnswer{report: r, at: n.now}
	n.memory.Merge(memory)
}

// turn is one round of the loop, without the questions.
func (n *diskNode) turn() {
	n.t.Helper()
	n.now = n.now.Add(time.Second)
	n.keepDisk(n.now)
	n.decide(n.now)
	n.giveUp(n.t.Context(), n.volume)
}

func (n *diskNode) codes() (codes string) {
	for _, f := range n.findings() {
		codes += string(f.Code)
	}
	return codes
}

// runAndPutBack runs n1 for a minute after a snapshot of its disk, and returns the disk put
// back, and what others remember.
func runAndPutBack(t *testing.T, kind string) (dir string, memory marks.Memory) {
	t.Helper()
	dir = t.TempDir()
	if kind == settings.VolumeStorage {
		if err := os.MkdirAll(filepath.Join(dir, "bricks", "cluster-1", ".glusterfs"), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	n := startDiskNode(t, dir, kind, time.Unix(1e9, 0))
	snapshot := t.TempDir()
	if err := os.CopyFS(snapshot, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	for range 60 {
		n.turn()
	}

	memory = marks.Memory{certificateOf(1): n.disk.allMarks()}
	return snapshot, memory
}

// TestDiskThatWasPutBack: the copy of a node whose disk was put back is not served, whoever
// answers first; it is set aside once, and what was remembered counts no more, also when the
// process dies between two steps.
func TestDiskThatWasPutBack(t *testing.T) {
	dir, memory := runAndPutBack(t, settings.VolumeStorage)
	brick := filepath.Join(dir, "bricks", "cluster-1")
	n := startDiskNode(t, dir, settings.VolumeStorage, time.Unix(1e9+7200, 0))
	if may, why := n.mayServe(); may || !strings.Contains(why, "n2, n3 did not answer yet") {
		t.Fatalf("serves at once: %v %q", may, why)
	}

	n.answers(2, memory)
	n.decide(n.now)
	if may, _ := n.mayServe(); may || n.verdict != marks.Ask {
		t.Errorf("one answer: %v, %s", may, n.verdict) // one good copy of three is not enough to give this one up
	}

	n.answers(3, nil)
	n.decide(n.now)
	if may, why := n.mayServe(); may || n.verdict != marks.Aside {
		t.Fatalf("two answers: %v %q %s", may, why, n.verdict)
	}

	// The process dies when the copy has been renamed and nothing else.
	if err := n.disk.savePutBack(n.putBack); err != nil {
		t.Fatal(err)
	}

	if err := n.volume.SetAside(t.Context(), n.now); err != nil {
		t.Fatal(err)
	}

	n = startDiskNode(t, dir, settings.VolumeStorage, n.now.Add(time.Minute))
	if may, why := n.mayServe(); may || !strings.Contains(why, "set aside") {
		t.Errorf("after a crash: %v %q", may, why)
	}

	for i := range 2 {
		n.answers(i+2, memory)
	}

	for range 30 {
		n.turn()
	}

	if may, why := n.mayServe(); !may {
		t.Errorf("set aside, and glusterd waits for %s", why)
	}

	if _, err := os.Lstat(brick); err == nil || len(n.keptCopies()) != 1 {
		t.Errorf("%v; kept %v", err, n.keptCopies())
	}

	if got := n.codes(); got != string(status.CopyOld) {
		t.Errorf("findings: %s", got)
	}

	n.memory.Merge(memory)
	if n.disk.markOf(marks.Bricks).Behind(n.memory.Of(n.self, marks.Bricks)) ||
		n.disk.markOf(marks.Data).Behind(n.memory.Of(n.self, marks.Data)) {
		t.Error("the disk counts as old for good")
	}
}

// TestDiskThatIsNotOld: a node that was off, or lost power, is not filled anew; damaged
// marks count as old, never as equal.
func TestDiskThatIsNotOld(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bricks", "cluster-1", ".glusterfs"), 0o755); err != nil {
		t.Fatal(err)
	}

	n := startDiskNode(t, dir, settings.VolumeStorage, time.Unix(1e9, 0))
	for range 100 {
		n.turn()
	}

	memory := marks.Memory{certificateOf(1): n.disk.allMarks()}
	for range 3 {
		n = startDiskNode(t, dir, settings.VolumeStorage, n.now.Add(time.Hour))
		n.answers(2, memory)
		n.answers(3, memory)
		n.turn()
		if may, why := n.mayServe(); !may || n.putBack.Stage != "" {
			t.Fatalf("%v %q %+v", may, why, n.putBack)
		}
	}

	for _, damage := range []string{"", "{", "[]", `{"starts":[{"id":"../x"}]}`,
		strings.Repeat("x", marks.MaxReport+1)} {
		if err := os.WriteFile(filepath.Join(dir, "bricks", copyMarkFile), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}

		n = startDiskNode(t, dir, settings.VolumeStorage, n.now.Add(time.Hour))
		n.answers(2, memory)
		n.answers(3, memory)
		n.decide(n.now)

		if may, _ := n.mayServe(); may || n.verdict != marks.Aside {
			t.Errorf("marks %.20q: %v %s", damage, may, n.verdict)
		}
	}
}

// TestOnlyCopyThatWasPutBack: the copy that nobody else has is served, old as it is; for a
// week that is said, and it does not count as old again.
func TestOnlyCopyThatWasPutBack(t *testing.T) {
	dir, memory := runAndPutBack(t, settings.VolumeStorage)
	n := startDiskNode(t, dir, settings.VolumeStorage, time.Unix(1e9+7200, 0))
	answer := func() {
		for i := 2; i <= 3; i++ {
			n.answers(i, memory)
			n.reports[certificateOf(i)].report.Copy = false
		}
	}

	answer()
	for range 3 {
		n.turn()
	}

	if may, why := n.mayServe(); !may || len(n.keptCopies()) > 0 {
		t.Errorf("%v %q", may, why)
	}

	n = startDiskNode(t, dir, settings.VolumeStorage, n.now.Add(time.Hour))
	answer()
	n.turn()
	got := n.findings()
	if may, why := n.mayServe(); !may || len(got) != 1 || got[0].Code != status.CopyOld ||
		!strings.Contains(got[0].Cause, "no other node has a copy") || !strings.Contains(got[0].Cause, "2001-09-09") {
		t.Errorf("an hour later: %v %q %+v", may, why, got)
	}

	n.now = n.now.Add(onlyTold)
	n.turn()
	if n.codes() != "" {
		t.Errorf("a week later: %s", n.codes())
	}
}

// TestCopyOfThisMachine: a copy of a machine, whose disk is older, gives nothing up while the
// machine itself answers, and says so when it goes on; just after a revert it is nobody else
// who answered before.
func TestCopyOfThisMachine(t *testing.T) {
	dir, memory := runAndPutBack(t, settings.VolumeStorage)
	n := startDiskNode(t, dir, settings.VolumeStorage, time.Unix(1e9+7200, 0))
	for second := range int(twinTold/time.Second) + 5 {
		for i := 2; i <= 3; i++ {
			n.answers(i, memory)
			n.reports[certificateOf(i)].report.Heard = &marks.Heard{Start: "themachine", Ago: 10 * time.Second}
		}

		n.turn()
		if may, _ := n.mayServe(); may || n.putBack.Stage != "" {
			t.Fatalf("after %d s: %v %+v", second, may, n.putBack)
		}

		if got := n.codes(); got != "" && time.Duration(second)*time.Second < twinTold-2*time.Second {
			t.Fatalf("after %d s: %s", second, got)
		}
	}

	if got := n.findings(); len(got) != 1 || got[0].Code != status.CopyUndecided ||
		!strings.Contains(got[0].Cause, "another machine answers as this node") {
		t.Errorf("%+v", got)
	}

	for i := 2; i <= 3; i++ {
		n.answers(i, memory) // without it
	}

	n.decide(n.now)
	if n.verdict != marks.Aside {
		t.Errorf("alone: %s", n.verdict)
	}
}

// TestDirectoryThatWasPutBack: without a volume nothing is held back; that the disk is old
// is said for a day.
func TestDirectoryThatWasPutBack(t *testing.T) {
	dir, memory := runAndPutBack(t, settings.DirectoryStorage)
	n := startDiskNode(t, dir, settings.DirectoryStorage, time.Unix(1e9+7200, 0))
	n.answers(2, memory)
	n.turn()

	if may, why := n.mayServe(); !may || n.codes() != string(status.DiskOld) {
		t.Errorf("%v %q %s", may, why, n.codes())
	}

	n = startDiskNode(t, dir, settings.DirectoryStorage, n.now.Add(time.Hour))
	n.answers(2, memory)
	n.turn()
	if n.codes() != string(status.DiskOld) {
		t.Errorf("an hour later: %s", n.codes())
	}

	n.now = n.now.Add(dataTold)
	n.turn()
	if n.codes() != "" {
		t.Errorf("a day later: %s", n.codes())
	}
}
