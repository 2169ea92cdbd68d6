//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/lab"
)

const down = "\x1b[B"

// blank is an appliance that nobody gave answers to.
func blank(t *testing.T, net *lab.Network, number int) *lab.Appliance {
	t.Helper()
	a := lab.NewAppliance(t, net, number, "", nil)
	if err := os.Remove(a.Answers()); err != nil {
		t.Fatal(err)
	}
	a.Launch(t)
	return a
}

// wizard opens the wizard of a node and waits for its first page.
func wizard(t *testing.T, a *lab.Appliance, term string, sized bool) *lab.Terminal {
	t.Helper()
	lab.Eventually(t, 30*time.Second, "the supervisor answers", func() error {
		_, err := a.Status(t)
		return err
	})
	x := a.Terminal(t, term, sized, "setup")
	opened(t, x)
	return x
}

func opened(t *testing.T, x lab.Screen) {
	t.Helper()
	x.WaitFor(t, step, "What shall this machine do?", "Enter: next")
}

const step = 30 * time.Second

// skipAdministrator leaves the account as it is.
func skipAdministrator(t *testing.T, x lab.Screen) {
	t.Helper()
	x.WaitFor(t, step, "SSH public key")
	x.Type(t, "\r\r\r")
}

// chosen is the line of a choice that is marked.
func chosen(x lab.Screen) string {
	_, rest, _ := strings.Cut(x.Screen(), "| > ")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// choose moves to the line of a choice that begins with text.
func choose(t *testing.T, x lab.Screen, text string) {
	t.Helper()
	for range 50 {
		now := chosen(x)
		if strings.HasPrefix(now, text) {
			return
		}

		x.Type(t, down)
		lab.Eventually(t, step, "another line is marked", func() error {
			if chosen(x) == now {
				return errors.New("not yet")
			}
			return nil
		})
	}

	t.Fatalf("%q is not among the choices:\n%s", text, x.Screen())
}

// useShared answers the page of storage.
func useShared(t *testing.T, x lab.Screen, dir string) {
	t.Helper()
	x.WaitFor(t, step, "Where", "a directory that all nodes share")
	choose(t, x, "a directory that all nodes share")
	x.Type(t, "\r")
	x.WaitFor(t, step, "an absolute path")
	x.Type(t, dir+"\r")
}

// useVirtual answers the page of the virtual address, which only the first
// node has.
func useVirtual(t *testing.T, x lab.Screen, address string) {
	t.Helper()
	x.WaitFor(t, step, "a free IP address")
	x.Type(t, address+"\r")
}

// useAPI answers the page of Salt's API.
func useAPI(t *testing.T, x lab.Screen, answer string) {
	t.Helper()
	x.WaitFor(t, step, "Shall this node serve")
	choose(t, x, answer)
	x.Type(t, "\r")
}

// review goes on from a preflight that passes and starts the set-up.
func review(t *testing.T, x lab.Screen, texts ...string) {
	t.Helper()
	x.WaitFor(t, 90*time.Second, "The set-up can go on")
	x.Type(t, "\r")
	x.WaitFor(t, step, append(texts, "START THE SET-UP")...)
	x.Type(t, "\r") // one Enter too many starts nothing
	x.WaitFor(t, step, "Press s to start the set-up.")
	x.Type(t, "s")
}

// TestWizard takes three machines from nothing to a cluster by the keys of the
// wizard: the first forms it on a vt220, the second joins with the join string
// from the first one's last page on a serial line without a size, the third
// with peers and secret after wrong ones were refused. A minion answers from
// each of them.
func TestWizard(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "wiz", "10.80")
	shared := lab.Dir(t)

	n1 := blank(t, net, 1)
	x := wizard(t, n1, "vt220", true)
	second := n1.Terminal(t, "linux", true, "setup")
	second.WaitFor(t, step, "What shall this machine do?") // nobody has typed yet: nobody leads
	x.Type(t, "\r")
	second.WaitFor(t, step, "Following", "t: take over")
	skipAdministrator(t, x)
	x.WaitFor(t, step, "Name of the cluster")
	x.Type(t, "not a name\r\x15n1\r192.0.2.9\r\r")
	x.WaitFor(t, step, "is not a plain name", "this machine does not have 192.0.2.9", "marked with an exclamation mark")
	x.Type(t, "\x15lab\r\r\x15"+n1.Addr+"\r\r")
	useShared(t, x, shared)
	useVirtual(t, x, "")
	useAPI(t, x, "yes")
	review(t, x, "lab", "n1", n1.Addr, shared, "generated, and shown at the end", "Salt's API")
	x.WaitFor(t, 120*time.Second, "This node is ready", "master: "+n1.Addr, "sca2.", "master_finger: ")
	x.Type(t, strings.Repeat(down, 3)) // long names of folders push the secret below the screen
	x.WaitFor(t, step, "sca2.", "The cluster's secret in it: ")

	if code := second.WaitEnd(t, step); code != 0 || strings.Contains(second.Screen(), "sca2.") {
		t.Errorf("the terminal that followed ended with %d and shows:\n%s", code, second.Screen())
	}

	join := joinString(t, x)
	x.Type(t, "\r")
	if code := x.WaitEnd(t, step); code != 0 {
		t.Errorf("the wizard ended with %d", code)
	}

	n2 := blank(t, net, 2)
	x = wizard(t, n2, "vt220", false)
	x.Type(t, down+"\r")
	skipAdministrator(t, x)
	x.WaitFor(t, step, "What do you have from the cluster?")
	x.Type(t, "\r\x15n2\r"+n2.Addr+"\r")
	x.WaitFor(t, step, "begins with sca2.")
	x.Type(t, join[:20]+"x"+join[21:]+"\r")
	x.WaitFor(t, step, "has a typing error after the second dot")
	x.Type(t, "\x14")
	x.WaitFor(t, step, "Ctrl-T hides them", secretOf(t, join))
	x.Type(t, "\x15"+join+"\r")
	useShared(t, x, shared)
	useAPI(t, x, "no")
	review(t, x, "through", n1.Addr)
	x.WaitFor(t, 120*time.Second, "This node is ready")

	n3 := blank(t, net, 3)
	x = wizard(t, n3, "xterm", true)
	x.Type(t, down+"\r")
	skipAdministrator(t, x)
	x.WaitFor(t, step, "What do you have from the cluster?")
	x.Type(t, down+"\r\x15n2\r"+n3.Addr+"\r")
	x.WaitFor(t, step, "one is enough")
	x.Type(t, "lab\r"+n1.Addr+"\rnot-the-secret-of-it\r")
	useShared(t, x, shared)
	useAPI(t, x, "no")
	x.WaitFor(t, 90*time.Second, "[fail]", "The set-up cannot go on", "->")
	x.Type(t, "\x03")
	x.WaitFor(t, step, "Nothing has been changed")
	x.Type(t, "y")

	if code := x.WaitEnd(t, step); code != 4 {
		t.Errorf("the wizard that was left ended with %d", code)
	}

	x = wizard(t, n3, "xterm", true)
	x.Type(t, down+"\r")
	skipAdministrator(t, x)
	x.WaitFor(t, step, "What do you have from the cluster?")
	x.Type(t, down+"\r\x15n3\r"+n3.Addr+"\r")
	x.WaitFor(t, step, "one is enough")
	x.Type(t, "lab\r"+n2.Addr+"\r"+secretOf(t, join)+"\r")
	useShared(t, x, shared)
	useAPI(t, x, "no")
	review(t, x, "n3")
	x.WaitFor(t, 120*time.Second, "This node is ready")

	for _, n := range []*lab.Appliance{n1, n2, n3} {
		n.WaitReady(t, 3)
		d, err := n.Status(t)
		if api := slices.ContainsFunc(d.Services,
			func(s status.Service) bool { return s.Name == status.APIService }); err != nil || api != (n == n1) {
			t.Errorf("%s serves Salt's API: %v, %v", n.Name, api, err)
		}
	}

	lab.StartMinionWith(t, "web1", lab.Newest, minionConf(t, n1))
	lab.Eventually(t, 90*time.Second, "the key of web1 is accepted", func() error {
		n2.Tool(t, "salt-key", "-y", "-a", "web1")
		if r := n2.Tool(t, "salt-key", "-l", "acc", "--out", "json"); r.Code != 0 || !strings.Contains(r.Out, "web1") {
			return fmt.Errorf("salt-key: %+v", r)
		}
		return nil
	})

	for _, n := range []*lab.Appliance{n1, n2, n3} {
		n.Ping(t, lab.Limit(90*time.Second), "web1")
	}

	for _, n := range []*lab.Appliance{n1, n2, n3} {
		nowhere(t, n, secretOf(t, join))
	}

	page := n3.Terminal(t, "vt220", true, "console")
	page.WaitFor(t, step, "cluster lab", "(3 nodes)", "1 status details", "n1", "n2")
	page.Type(t, "2")
	page.WaitFor(t, step, "The last lines of master")
	page.Type(t, "\x03")

	if code := page.WaitEnd(t, step); code != 0 {
		t.Errorf("the console page ended with %d", code)
	}
}

// minionConf are the lines for minions that a node gives, which say by which key
// they know their masters.
func minionConf(t *testing.T, a *lab.Appliance) map[string]any {
	t.Helper()
	var p setup.Progress
	if err := json.Unmarshal([]byte(a.Applianced(t, "setup", "progress", "--json").Out), &p); err != nil ||
		p.Done == nil {
		t.Fatalf("%+v, %v", p, err)
	}

	var conf map[string]any
	if err := yaml.Unmarshal([]byte(p.Done.MinionConf), &conf); err != nil {
		t.Fatal(err)
	}

	if finger, _ := conf["master_finger"].(string); len(finger) != 95 {
		t.Fatalf("master_finger: %q", finger)
	}

	return conf
}

// nowhere looks for a secret where it must not be: in the log, the status, and
// the arguments and environment of processes.
func nowhere(t *testing.T, a *lab.Appliance, secret string) {
	t.Helper()
	log, err := os.ReadFile(a.Log)
	if err != nil {
		t.Fatal(err)
	}

	places := map[string]string{
		"the log of " + a.Name:    string(log),
		"the status of " + a.Name: a.Applianced(t, "status", "--json").Out,
	}

	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range files {
		args, _ := os.ReadFile(f)
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ"))
		places[f] = string(args) + string(env)
	}

	for where, text := range places {
		if strings.Contains(text, secret) {
			t.Errorf("the secret of the cluster is in %s", where)
		}
	}

	if len(secret) < 16 {
		t.Errorf("no secret: %q", secret)
	}
}

// joinString reads the join string off the last page, where it may go over two
// lines.
func joinString(t *testing.T, x lab.Screen) string {
	t.Helper()
	_, rest, _ := strings.Cut(x.Screen(), "applianced join-string):")
	rest, _, _ = strings.Cut(rest, "The cluster's secret")
	s := strings.Join(strings.Fields(rest), "")
	if !strings.HasPrefix(s, "sca2.") || !strings.Contains(s, "@") {
		t.Fatalf("no join string on the last page:\n%s", x.Screen())
	}
	return s
}

// secretOf is the secret in a join string.
func secretOf(t *testing.T, join string) string {
	t.Helper()
	j, err := setup.ParseJoin(join)
	if err != nil {
		t.Fatal(err)
	}
	return j.Secret
}
