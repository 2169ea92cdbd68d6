//go:build e2e && appliance

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestToolsBesideAHungMaster: of three nodes one has a master that is stopped by
// SIGSTOP. Salt's tools work there as on the others, by another master, and say so;
// what they start happens once, whether the master goes on or another one follows.
// Afterwards they ask their own master as before.
func TestToolsBesideAHungMaster(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "too", "10.79")
	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	nodes[0].StartMinion(t, "m1", lab.Newest)
	nodes[0].Ping(t, 150*time.Second, "m1")
	nodes[1].Ping(t, 60*time.Second, "m1")
	well, here := nodes[0], nodes[1]
	file := filepath.Join(lab.Dir(t), "lines")
	line := func(word string) []string { return []string{"m1", "cmd.run", "echo " + word + " >> " + file} }
	lines := func(word string) int {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), word+"\n")
	}

	quiet := here.Tool(t, "salt", line("well")...)
	if quiet.Code != 0 || quiet.Err != "" || lines("well") != 1 {
		t.Fatalf("with its own master: %+v, %d lines", quiet, lines("well"))
	}

	calls := []struct {
		tool string
		args []string
		same bool // gives the same on another node
	}{
		{"salt", []string{"m1", "test.ping"}, true},
		{"salt", []string{"m1", "test.ping", "--out", "json"}, true},
		{"salt", []string{"nobody", "test.ping"}, true},
		{"salt", []string{"m1", "cmd.run", "exit 3"}, true},
		{"salt", []string{"m1", "cmd.run", "echo '$HOME ü'; sleep 7"}, true},
		{"salt-run", []string{"manage.up", "--out", "json"}, true},
		{"salt-run", []string{"jobs.lookup_jid", "20200101000000000000"}, true},
		{"salt", line("stopped"), false},
		{"salt", append([]string{"--batch", "1"}, line("batch")...), false},
		{"salt", append([]string{"--async"}, line("async")...), false},
	}

	want := make([]lab.Result, len(calls))
	for i, c := range calls {
		if c.same {
			want[i] = well.Tool(t, c.tool, c.args...)
		}
	}

	strike(t, here, "master", syscall.SIGSTOP)
	struck := time.Now()
	got, took := make([]lab.Result, len(calls)), make([]time.Duration, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() {
			got[i] = here.Tool(t, c.tool, c.args...)
			took[i] = time.Since(struck)
		})
	}

	var keys lab.Result
	all.Go(func() { keys = here.Tool(t, "salt-key", "-l", "acc") })
	all.Wait()
	if keys.Code != 0 || keys.Err != "" || !strings.Contains(keys.Out, "m1") {
		t.Errorf("keys: %+v", keys)
	}

	for i, c := range calls {
		t.Logf("%s %q after %s: exit %d\n%s%s", c.tool, c.args, took[i], got[i].Code, got[i].Out, got[i].Err)
		note, rest, _ := strings.Cut(got[i].Err, "\n")
		if !strings.HasPrefix(note, "this node's master does not answer; asked n") || c.same && rest != want[i].Err {
			t.Errorf("%s %q: standard error %q", c.tool, c.args, got[i].Err)
		}

		if c.same && (got[i].Code != want[i].Code || got[i].Out != want[i].Out) {
			t.Errorf("%s %q: %+v, want %+v", c.tool, c.args, got[i], want[i])
		}

		if !c.same && got[i].Code != 0 {
			t.Errorf("%s %q: exit %d", c.tool, c.args, got[i].Code)
		}
	}

	if took[0] < 2*time.Second || took[0] > 9*time.Second {
		t.Errorf("answered after %s", took[0])
	}

	strike(t, here, "master", syscall.SIGCONT) // or the supervisor has ended it meanwhile
	own := func() error {
		r := here.Tool(t, "salt", "m1", "test.ping")
		if r.Code != 0 || r.Err != "" || !strings.Contains(r.Out, "True") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}

	lab.Eventually(t, 60*time.Second, "its own master serves again", own)
	strike(t, here, "master", syscall.SIGSTOP)
	if r := here.Tool(t, "salt", line("again")...); r.Code != 0 || !strings.Contains(r.Err, "asked n") {
		t.Errorf("stopped again: %+v", r)
	}

	strike(t, here, "master", syscall.SIGCONT) // long before it would be ended
	lab.Eventually(t, 60*time.Second, "the master goes on", own)
	here.Ping(t, 60*time.Second, "m1")
	for _, word := range []string{"well", "stopped", "batch", "async", "again"} {
		if n := lines(word); n != 1 {
			t.Errorf("%s happened %d times", word, n)
		}
	}

	jobs := well.Tool(t, "salt-run", "jobs.list_jobs", "search_function=cmd.run", "--out", "json")
	if n := strings.Count(jobs.Out, "echo again >> "); jobs.Code != 0 || n != 1 {
		t.Errorf("%d jobs: %+v", n, jobs)
	}

	for _, n := range nodes {
		strike(t, n, "master", syscall.SIGSTOP)
	}

	r := here.Tool(t, "salt", "m1", "test.ping")
	t.Logf("with no master at all: exit %d\n%s%s", r.Code, r.Out, r.Err)
	if r.Code == 0 || !strings.Contains(r.Err, "no other one can be asked: n") ||
		strings.Count(r.Err, "its master does not answer either") != 2 {
		t.Errorf("%+v", r)
	}
}
