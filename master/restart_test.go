package master

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

	"saltern/master/msgpack"
	"saltern/master/value"
)

// again stops the master and starts another one on the same folders.
func (r *running) again(options string) *running {
	r.t.Helper()
	r.stop()
	return startMasterIn(r.t, r.dir, options)
}

// at lets a minion talk to another master.
func (n *scriptedMinion) at(r *running) *scriptedMinion {
	n.hangUp()
	n.r = r
	return n
}

func TestRestart(t *testing.T) {
	t.Parallel()
	r := startMaster(t, "")
	a := r.accepted("min1", "min6")
	a.pillar("grains", value.NewMap("id", "min1", "role", "web"))
	a.ask("_mine", "data", value.NewMap("f", "kept"))
	sub := r.subscribe()
	last := int64(0)
	serial := func(sub *subscriber) {
		t.Helper()
		for _, p := range sub.published() {
			n, ok := a.openPublish(p).Int("serial")
			if !ok || n <= last {
				t.Errorf("serial %d after %d", n, last)
			}
			last = n
		}
	}

	var jids []string
	for range 5 {
		jids = append(jids, r.job("*", "test.ping").Str("jid"))
	}

	serial(sub)
	acked := map[string]string{}
	for round := range 3 {
		// Minions return while the master stops. What it has acknowledged must
		// be there afterwards.
		var mu sync.Mutex
		var wg sync.WaitGroup
		var senders []*scriptedMinion
		for i := range 8 {
			id := fmt.Sprintf("ret-%d-%d", round, i)
			senders = append(senders, r.accepted(id, []string{"min7", "min8", "minsha", "minsign"}[i%4]))
		}

		for _, n := range senders {
			wg.Go(func() {
				for j := 0; ; j++ {
					jid := jids[j%len(jids)]
					if j >= len(jids) { // salt-call returns make jobs of their own
						jid = "req"
					}

					value := newNonce()
					l := n.load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return",
						value, "retcode", 0, "success", true)
					b, err := n.send(n.payload(l))
					if err != nil {
						return
					}

					if v, err := msgpack.Decode(b, msgpack.DefaultLimits); err != nil || v == "bad load" {
						return
					}

					mu.Lock()
					acked[value] = n.id
					mu.Unlock()
				}
			})
		}

		until(t, "returns", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > (round+1)*100 })
		r = r.again("")
		wg.Wait()

		// The old session key is good without a new sign-in, at once.
		a.at(r)
		if v, _ := a.ask("_mine_get", "tgt", "role:web", "fun", "f", "tgt_type", "grain").(*value.Map); v.Str("min1") != "kept" {
			t.Errorf("round %d: mine after the restart: %v", round, v)
		}

		sub = r.subscribe()
		jids = append(jids[1:], r.job("*", "test.ping").Str("jid"))
		serial(sub)
	}

	stored := allReturns(t, r)
	for value, id := range acked {
		if stored[value] != id {
			t.Errorf("an acknowledged return of %s is missing", id)
		}
	}

	t.Logf("%d returns acknowledged, %d stored", len(acked), len(stored))
	s := a.signIn()
	if s.Str("enc") != "pub" {
		t.Errorf("sign-in after restarts: %v", s)
	}

	a.ask("_file_envs")
}

// allReturns maps the returned values in the job cache to their minions.
func allReturns(t testing.TB, r *running) map[string]string {
	t.Helper()
	out := map[string]string{}
	h := r.path("cache", "jobs")
	tops, err := os.ReadDir(h)
	must(t, err)

	for _, a := range tops {
		subs, err := os.ReadDir(h + "/" + a.Name())
		must(t, err)
		for _, b := range subs {
			jid, err := os.ReadFile(h + "/" + a.Name() + "/" + b.Name() + "/jid")
			if errors.Is(err, os.ErrNotExist) {
				continue
			}

			must(t, err)
			rets, err := r.m.jobs.Returns(t.Context(), strings.TrimSpace(string(jid)))
			must(t, err)
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
	must(t, err)
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
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		fmt.Println("NO MOUNT", err)
		t.Skip(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)

	r := startMasterIn(t, dir, "")
	a, b := r.accepted("min1", "min6"), r.accepted("min2", "min7")
	r.listen()
	var jids []string
	for range 400 {
		jids = append(jids, r.job("*", "test.ping").Str("jid"))
	}

	acked := map[string]string{}
	noise := func() string { // does not compress
		b := make([]byte, 32<<10)
		rand.Read(b)
		return fmt.Sprintf("%x", b)
	}

	// give returns whether the return was acknowledged.
	give := func(n *scriptedMinion, load *value.Map) bool {
		t.Helper()
		start := time.Now()
		answer, err := n.send(n.payload(load))
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("the answer took %s", d)
		}

		if err != nil {
			return false
		}

		if v, sealed := n.open(answer, load.Str("nonce")); !sealed || v != nil {
			t.Fatalf("a return is answered %v", v)
		}

		acked[load.Str("return")] = n.id
		return true
	}

	ret := func(n *scriptedMinion, jid string) *value.Map {
		return n.load("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", noise(),
			"retcode", 0, "success", true)
	}

	for _, j := range jids[:5] {
		if !give(a, ret(a, j)) {
			t.Fatal("a return is refused on an empty disk")
		}
	}

	// Fill it up, leaving next to nothing.
	filler := r.path("filler")
	f, err := os.Create(filler)
	must(t, err)
	chunk := make([]byte, 1<<16)
	for {
		if _, err := f.Write(chunk); err != nil {
			break
		}
	}

	must(t, f.Close())
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
	r.seen()

	// What needs no disk goes on.
	if v := b.ask("_file_envs"); fmt.Sprint(v) != "[base]" {
		t.Errorf("meanwhile: %v", v)
	}

	if s := b.signIn(); s.Str("enc") != "pub" {
		t.Errorf("sign-in meanwhile: %v", s)
	}

	// Nobody was told of a return that is not kept.
	for _, l := range late {
		if give(a, l) {
			t.Error("a return was acknowledged on a full disk")
		}
	}

	for _, e := range r.seen() {
		if strings.Contains(e.Tag, "/ret/") {
			t.Errorf("event %s for a return that is not kept", e.Tag)
		}
	}

	must(t, os.Remove(filler))

	// The minion repeats the same requests, and they are taken now.
	for i, l := range late {
		until(t, fmt.Sprintf("return %d is taken", i), func() bool { return give(a, l) })
	}

	if !give(b, ret(b, jids[0])) {
		t.Error("a new return after the disk has room")
	}

	r = r.again("")
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
