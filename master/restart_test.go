package master_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"saltern/master/internal/mastertest"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	a := r.AcceptedMinion("min1", "min6")
	a.Pillar("grains", value.NewMap("id", "min1", "role", "web"))
	a.Ask("_mine", "data", value.NewMap("f", "kept"))
	sub := r.Subscribe()
	last := int64(0)
	serial := func(sub *mastertest.Subscriber) {
		t.Helper()
		for _, p := range sub.Published() {
			n, ok := a.OpenPublication(p).Int("serial")
			if !ok || n <= last {
				t.Errorf("serial %d after %d", n, last)
			}
			last = n
		}
	}

	var jids []string
	for range 5 {
		jids = append(jids, r.Publish("*", "test.ping").Str("jid"))
	}

	serial(sub)
	acked := map[string]string{}
	for round := range 3 {
		// Minions send returns while the master stops. The returns that it has acknowledged must
		// exist afterwards.
		var mu sync.Mutex
		var wg sync.WaitGroup
		var senders []*mastertest.Minion
		for i := range 8 {
			id := fmt.Sprintf("ret-%d-%d", round, i)
			senders = append(senders, r.AcceptedMinion(id, []string{"min7", "min8", "minsha", "minsign"}[i%4]))
		}

		for _, n := range senders {
			wg.Go(func() {
				for j := 0; ; j++ {
					jid := jids[j%len(jids)]
					if j >= len(jids) { // salt-call returns make jobs of their own
						jid = "req"
					}

					value := mastertest.NewNonce()
					l := n.Load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return",
						value, "retcode", 0, "success", true)
					b, err := n.Send(n.Payload(l))
					if err != nil {
						return
					}

					if v, err := msgpack.Decode(b, msgpack.DefaultLimits); err != nil || v == "bad load" {
						return
					}

					mu.Lock()
					acked[value] = n.ID
					mu.Unlock()
				}
			})
		}

		await.That(t, "returns", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > (round+1)*100 })
		r = r.Restart("")
		wg.Wait()

		// The old session key is good without a new sign-in, at once.
		a.TalkTo(r)
		if v, _ := a.Ask("_mine_get", "tgt", "role:web", "fun", "f", "tgt_type", "grain").(*value.Map); v.Str("min1") != "kept" {
			t.Errorf("round %d: mine after the restart: %v", round, v)
		}

		sub = r.Subscribe()
		jids = append(jids[1:], r.Publish("*", "test.ping").Str("jid"))
		serial(sub)
	}

	stored := allReturns(t, r)
	for value, id := range acked {
		if stored[value] != id {
			t.Errorf("an acknowledged return of %s is missing", id)
		}
	}

	t.Logf("%d returns acknowledged, %d stored", len(acked), len(stored))
	s := a.SignIn()
	if s.Str("enc") != "pub" {
		t.Errorf("sign-in after restarts: %v", s)
	}

	a.Ask("_file_envs")
}

// allReturns maps the returned values in the job cache to their minions.
func allReturns(t testing.TB, r *mastertest.Master) map[string]string {
	t.Helper()
	out := map[string]string{}
	h := r.Path("cache", "jobs")
	tops, err := os.ReadDir(h)
	check.Must(t, err)

	for _, a := range tops {
		subs, err := os.ReadDir(h + "/" + a.Name())
		check.Must(t, err)
		for _, b := range subs {
			jid, err := os.ReadFile(h + "/" + a.Name() + "/" + b.Name() + "/jid")
			if errors.Is(err, os.ErrNotExist) {
				continue
			}

			check.Must(t, err)
			rets, err := r.Parts.Jobs.Returns(t.Context(), strings.TrimSpace(string(jid)))
			check.Must(t, err)
			for id, v := range rets.All() {
				m, _ := v.(*value.Map)
				out[m.Str("return")] = id.(string)
			}
		}
	}

	return out
}

const smallDisk = "SALTERN_TEST_SMALL_DISK"

// TestDiskFull runs itself again with a small file system of its own.
func TestDiskFull(t *testing.T) {
	if dir := os.Getenv(smallDisk); dir != "" {
		diskFull(t, dir)
		return
	}

	t.Parallel()
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	defer os.RemoveAll(dir)

	cmd := exec.Command(os.Args[0], "-test.run=^TestDiskFull$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}

	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "NO MOUNT") {
		t.Skipf("THE FULL DISK IS NOT TESTED: no mount namespace here: %v %s", err, out)
	}

	if err != nil || !strings.Contains(string(out), "--- PASS: TestDiskFull") {
		t.Errorf("%v\n%s", err, out)
	}
}

func diskFull(t *testing.T, dir string) {
	check.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		fmt.Println("NO MOUNT", err)
		t.Skip(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)

	r := mastertest.StartIn(t, dir, "")
	a, b := r.AcceptedMinion("min1", "min6"), r.AcceptedMinion("min2", "min7")
	r.ListenToBus()
	var jids []string
	for range 400 {
		jids = append(jids, r.Publish("*", "test.ping").Str("jid"))
	}

	acked := map[string]string{}
	noise := func() string { // does not compress
		b := make([]byte, 32<<10)
		rand.Read(b)
		return fmt.Sprintf("%x", b)
	}

	// give returns whether the return was acknowledged.
	give := func(n *mastertest.Minion, load *value.Map) bool {
		t.Helper()
		start := time.Now()
		answer, err := n.Send(n.Payload(load))
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the answer took %s", d)
		}

		if err != nil {
			return false
		}

		if v, sealed := n.Open(answer, load.Str("nonce")); !sealed || v != nil {
			t.Fatalf("a return is answered %v", v)
		}

		acked[load.Str("return")] = n.ID
		return true
	}

	ret := func(n *mastertest.Minion, jid string) *value.Map {
		return n.Load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", noise(),
			"retcode", 0, "success", true)
	}

	for _, j := range jids[:5] {
		if !give(a, ret(a, j)) {
			t.Fatal("a return is refused on an empty disk")
		}
	}

	// Fill it up, leaving next to nothing.
	filler := r.Path("filler")
	f, err := os.Create(filler)
	check.Must(t, err)
	chunk := make([]byte, 1<<16)
	for {
		if _, err := f.Write(chunk); err != nil {
			break
		}
	}

	check.Must(t, f.Close())
	var late []*value.Map
	for _, j := range jids[5:] {
		l := ret(a, j)
		if !give(a, l) {
			if late = append(late, l); len(late) == 5 {
				break
			}
		}
	}

	if len(late) == 0 {
		t.Fatal("the disk never got full")
	}

	t.Logf("%d returns acknowledged before the disk was full", len(acked))
	r.NewEvents()

	// What needs no disk goes on.
	if v := b.Ask("_file_envs"); fmt.Sprint(v) != "[base]" {
		t.Errorf("meanwhile: %v", v)
	}

	if s := b.SignIn(); s.Str("enc") != "pub" {
		t.Errorf("sign-in meanwhile: %v", s)
	}

	// Nobody was told of a return that is not kept.
	for _, l := range late {
		if give(a, l) {
			t.Error("a return was acknowledged on a full disk")
		}
	}

	for _, e := range r.NewEvents() {
		if strings.Contains(e.Tag, "/ret/") {
			t.Errorf("event %s for a return that is not kept", e.Tag)
		}
	}

	check.Must(t, os.Remove(filler))

	// The minion repeats the same requests, and they are taken now.
	for i, l := range late {
		await.That(t, fmt.Sprintf("return %d is taken", i), func() bool { return give(a, l) })
	}

	if !give(b, ret(b, jids[0])) {
		t.Error("a new return after the disk has room")
	}

	r = r.Restart("")
	stored := allReturns(t, r)
	for value, id := range acked {
		if stored[value] != id {
			t.Errorf("an acknowledged return of %s is missing", id)
		}
	}

	if len(stored) != len(acked) {
		t.Errorf("%d returns stored, %d acknowledged", len(stored), len(acked))
	}
}
