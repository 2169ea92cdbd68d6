//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/internal/command"
	"saltern/internal/control/toolrun"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestChildrenRunAsAnotherUser: with root rights and an account, neither the
// master nor the load balancer is root, and a minion works all the same.
func TestChildrenRunAsAnotherUser(t *testing.T) {
	if lab.Peer() {
		t.Skip("the stand-in changes its user by its own rules")
	}
	if os.Geteuid() != 0 {
		t.Fatal("needs root, as CI has")
	}

	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}

	bin := lab.Dir(t) // the checkout may not be open to others
	programs := map[string]any{}
	for key, name := range map[string]string{"master": "salt-master", "lb": "applianced"} {
		b, err := os.ReadFile(lab.Bin(t, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), b, 0o755)
		}

		if err != nil {
			t.Fatal(err)
		}

		programs[key] = filepath.Join(bin, name)
	}

	n := lab.StartNode(t, lab.NodeConfig{Extra: map[string]any{
		"users": map[string]any{"master": "nobody", "lb": "nobody"}, "programs": programs}})
	accepted(t, n, "web1", lab.Newest)
	for _, name := range []string{"master", "lb"} {
		p, _ := pid(t, n, name)
		fi, err := os.Stat(fmt.Sprintf("/proc/%d", p))
		if err != nil {
			t.Fatal(err)
		}

		if uid := fi.Sys().(*syscall.Stat_t).Uid; strconv.Itoa(int(uid)) != nobody.Uid {
			t.Errorf("%s runs with uid %d", name, uid)
		}

		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		if err != nil {
			t.Fatal(err)
		}

		for _, want := range []string{"CapEff:\t0000000000000000", "Groups:\t \n"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: not %q in\n%s", name, want, text)
			}
		}
	}

	d, err := n.Status(t)
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range d.Problems {
		if p.Code == status.ChildrenAsRoot {
			t.Errorf("%+v", p)
		}
	}

	// What another node has run here runs as that account, in root's name.
	b, err := os.ReadFile(lab.Bin(t, "salt"))
	if err == nil {
		err = os.WriteFile(filepath.Join(bin, "salt"), b, 0o755)
	}

	if err != nil {
		t.Fatal(err)
	}

	for call, want := range map[string]string{
		`{"tool":"salt","user":"sudo_alice","words":["web1","test.arg","--out","json","here"]}`: "here",
		`{"tool":"salt-run","user":"sudo_alice","words":["manage.up"]}`:                         "- web1",
	} {
		out, err := command.Do(t.Context(), command.Exec{
			Path:       filepath.Join(bin, "salt"),
			Stdin:      call,
			Limit:      time.Minute,
			Credential: &syscall.Credential{Uid: id(t, nobody.Uid), Gid: id(t, nobody.Gid)},
		}, toolrun.Program, n.Settings.MasterConf())
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", call, err, out)
		}
	}

	jobs := n.SaltRun(t, "jobs.list_jobs", "search_function=test.arg")
	if !strings.Contains(jobs.Out, "sudo_alice") {
		t.Errorf("jobs:\n%s%s", jobs.Out, jobs.Err)
	}
}

func id(t *testing.T, s string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}
