//go:build e2e && appliance

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/options"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/test/lab"
)

// machines are pretend ones with a real glusterd and a disk each (see
// test/gluster/lab). Nodes are on 1 to 3, minions on the last.
type machines struct {
	dir, script string
	name        string   // begins those of their namespaces
	disks       string   // of the machines
	settings    []string // of the script
	env         []string
	net         string
	answers     map[int]map[string]any
	runs        map[int]*exec.Cmd
	minions     int // where they are
	tls         bool
	options     map[string]any // of the masters, beside those of launch
}

func newMachines(t *testing.T, n int) *machines {
	t.Helper()
	for _, p := range []string{"glusterd", "mkfs.xfs", "ip"} {
		if _, err := exec.LookPath(p); err != nil || os.Getuid() != 0 {
			t.Skipf("NOT TESTED: %s is missing, or this is not root (make deps): %v", p, err)
		}
	}

	script, err := filepath.Abs("../gluster/lab")
	if err != nil {
		t.Fatal(err)
	}

	h := &machines{
		dir:     lab.Dir(t),
		script:  script,
		net:     cmp.Or(os.Getenv("LAB_NET"), "10.73.1"),
		answers: map[int]map[string]any{},
		runs:    map[int]*exec.Cmd{},
		minions: n,
	}

	h.name = cmp.Or(os.Getenv("LAB_NAME"), "day") // two runs at once need names and networks of their own
	h.disks = filepath.Join(os.TempDir(), "lab-"+h.name)
	h.settings = []string{"LAB_NAME=" + h.name, "LAB_DIR=" + h.disks, "LAB_NET=" + h.net, "LAB_DISK_MB=4096"}
	h.env = append(os.Environ(), h.settings...)
	h.must(t, "down")
	t.Cleanup(func() {
		for i := range h.runs {
			h.off(i)
			if t.Failed() {
				t.Logf("log of node%d:\n%s", i, lab.Tail(h.path(i, "log"), 60))
			}
		}
		_ = h.call("down")
	})

	for i := 1; i <= n; i++ {
		h.must(t, "boot", fmt.Sprint(i))
	}

	return h
}

func (h *machines) addr(i int) string { return fmt.Sprintf("%s.1%d", h.net, i) }
func (h *machines) path(i int, name string) string {
	return filepath.Join(h.dir, fmt.Sprintf("node%d.%s", i, name))
}

func (h *machines) call(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.script, args...)
	cmd.Env, cmd.WaitDelay = h.env, 5*time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (h *machines) must(t *testing.T, args ...string) {
	t.Helper()
	if err := h.call(args...); err != nil {
		t.Fatal(err)
	}
}

// exec gives the command that runs something on machine i.
func (h *machines) exec(ctx context.Context, i int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.script, append([]string{"exec", fmt.Sprint(i)}, args...)...)
	cmd.Env, cmd.WaitDelay = h.env, 5*time.Second
	return cmd
}

// begin starts a program on machine i that lasts until off or a crash.
func (h *machines) begin(t testing.TB, i int, log string, args ...string) *exec.Cmd {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()

	cmd := h.exec(context.Background(), i, args...)
	cmd.Stdout = out
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	return cmd
}

// launch starts applianced with the answers for machine i.
func (h *machines) launch(t testing.TB, i int, answers map[string]any) {
	t.Helper()
	all := map[string]any{
		"cluster_id": "lab",
		"node":       fmt.Sprintf("node%d", i),
		"address":    h.addr(i),
		"front":      []string{h.addr(i)},
		"settings": map[string]any{
			"data_dir":       "/data/saltern",
			"runtime_dir":    "/run/saltern",
			"allow_insecure": []string{"auto_accept"},
			"limits":         map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1},
			"storage": map[string]any{
				"kind":   "volume",
				"bricks": "/data/brick",
				"tls":    h.tls && answers["mode"] == "form",
			},
			"master": map[string]any{"options": map[string]any{
				"auto_accept":             true,
				"gather_job_timeout":      30,
				"saltern_renderer_python": filepath.Join(lab.Venv(t, lab.Newest), "python3"),
			}},
		},
	}

	maps.Copy(all["settings"].(map[string]any)["master"].(map[string]any)["options"].(map[string]any), h.options)
	maps.Copy(all, answers)
	h.answers[i] = all
	text, err := yaml.Marshal(all)
	if err == nil && answers != nil {
		err = os.WriteFile(h.path(i, "answers"), text, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	args := []string{lab.Bin(t, "applianced"), "run", "--config", "/data/appliance.yaml", "--data-dir",
		"/data/saltern", "--runtime-dir", "/run/saltern"}
	if answers != nil {
		args = append(args, "--answers", h.path(i, "answers"))
	}

	h.runs[i] = h.begin(t, i, h.path(i, "log"), args...)
}

// off ends applianced on machine i and what it started; the machine stays.
func (h *machines) off(i int) {
	if cmd := h.runs[i]; cmd != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	delete(h.runs, i)
}

// lost is a machine that burns down; in its place stands a new one.
func (h *machines) lost(t *testing.T, i int) {
	t.Helper()
	h.off(i)
	h.must(t, "crash", fmt.Sprint(i))
	dir := filepath.Join(h.disks, fmt.Sprint(i))
	// mount points; where there are none it fails
	_ = exec.Command("chattr", "-R", "-i", filepath.Join(dir, "srv")).Run()
	lab.Eventually(t, 30*time.Second, "the machine is gone", func() error { return os.RemoveAll(dir) })
}

// verb runs applianced on machine i.
func (h *machines) verb(t testing.TB, i int, in string, args ...string) lab.Result {
	t.Helper()
	return h.run(t, i, in,
		append([]string{lab.Bin(t, "applianced"), "--config", "/data/appliance.yaml", "--socket",
			"/run/saltern/applianced.sock"},
			args...)...)
}

func (h *machines) run(t testing.TB, i int, in string, args ...string) lab.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := h.exec(ctx, i, args...)
	var out, errs strings.Builder
	cmd.Stdin = strings.NewReader(in)
	cmd.Stdout = &out
	cmd.Stderr = &errs
	_ = cmd.Run()
	return lab.Result{Out: out.String(), Err: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// ready waits until node i serves, sees so many nodes, all ready, and the
// volume has a whole copy on each.
func (h *machines) ready(t *testing.T, i, nodes int) {
	t.Helper()
	began := time.Now()
	lab.Eventually(t, 480*time.Second, fmt.Sprintf("node%d is one of %d", i, nodes), func() error {
		var d status.Document
		r := h.verb(t, i, "", "status", "--json")
		if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}

		problems := ""
		for _, p := range d.Problems {
			problems += fmt.Sprintf("; %s %s: %s", p.Code, p.Title, p.Cause)
		}

		if d.Setup != status.SetupReady || len(d.Nodes) != nodes || d.Storage.Kind != "volume" {
			return fmt.Errorf("set-up %s, %d nodes, %s%s", d.Setup, len(d.Nodes), d.Storage.Kind, problems)
		}

		for _, n := range d.Nodes {
			if n.State != "ready" {
				return fmt.Errorf("%s is %s%s", n.Name, n.State, problems)
			}
		}

		return h.volumeWhole(t, i, nodes)
	})

	t.Logf("node%d is ready as one of %d after %.0f s", i, nodes, time.Since(began).Seconds())
}

// volumeWhole returns what the volume lacks, as node i of so many sees it, of being ready with
// a whole copy on each brick.
func (h *machines) volumeWhole(t *testing.T, i, nodes int) error {
	t.Helper()
	var s storage.State
	r := h.verb(t, i, "", "storage", "status", "--json")
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil {
		return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
	}

	up := 0
	for _, b := range s.Bricks {
		if b.Up {
			up++
		}
	}

	// Two nodes have one copy, or two of what were three: no third decides.
	if !s.Ready || !s.Done || up == 0 || up != len(s.Bricks) || nodes == 3 && up != 3 ||
		up > 1 && (!s.Heal.Known || s.Heal.Pending > 0) {
		return fmt.Errorf("volume: %s %s %s %+v %+v", s.Waiting, s.Doing, s.Plan, s.Bricks, s.Heal)
	}

	return nil
}

// minion starts a minion that knows these addresses, or that of all three nodes, and
// uses one after another. One that is lost costs it auth_tries times auth_timeout.
func (h *machines) minion(t *testing.T, id, version string, masters ...string) *exec.Cmd {
	t.Helper()
	if len(masters) == 0 {
		masters = []string{h.addr(1), h.addr(2), h.addr(3)}
	}

	dir := filepath.Join(h.dir, id)
	for _, d := range []string{"pki", "cache", "sock", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	conf, err := yaml.Marshal(map[string]any{
		"id":                    id,
		"master":                masters,
		"master_type":           "failover",
		"master_alive_interval": 10,
		"retry_dns":             0,
		"master_tries":          -1,
		"auth_timeout":          10,
		"auth_tries":            2,
		"acceptance_wait_time":  3,
		"random_reauth_delay":   3,
		"recon_max":             3000,
		"pki_dir":               dir + "/pki",
		"cachedir":              dir + "/cache",
		"sock_dir":              dir + "/sock",
		"log_file":              dir + "/log",
		"pidfile":               dir + "/pid",
		"user":                  "root",
		"enable_fqdns_grains":   false,
		"enable_gpu_grains":     false,
		"conf_file":             dir + "/etc/minion",
		"grains":                map[string]any{"lab": true},
	})
	if err == nil {
		err = os.WriteFile(dir+"/etc/minion", conf, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	cmd := h.begin(t, h.minions, dir+"/out", filepath.Join(lab.Venv(t, version), "salt-minion"), "-c",
		dir+"/etc", "-l", "warning")
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("minion %s:\n%s", id, lab.Tail(dir+"/out", 20))
		}
	})

	return cmd
}

// salt runs one of Salt's tools on node i.
func (h *machines) salt(t testing.TB, i int, tool string, args ...string) lab.Result {
	t.Helper()
	return h.run(t, i, "", append([]string{lab.Bin(t, tool), "-c", "/data/saltern/etc/salt"}, args...)...)
}

// answer waits until minions answer one job of node i.
func (h *machines) answer(t *testing.T, i int, ids ...string) {
	t.Helper()
	began := time.Now()
	lab.Eventually(t, 240*time.Second, fmt.Sprintf("test.ping from node%d", i), func() error {
		r := h.salt(t, i, "salt", "--out", "json", "--static", "-t", "20", "*", "test.ping")
		var m map[string]any
		if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}

		for _, id := range ids {
			if m[id] != true {
				return fmt.Errorf("%s gave %v", id, m[id])
			}
		}

		return nil
	})

	t.Logf("%v answer node%d after %.0f s", ids, i, time.Since(began).Seconds())
}

// joinByHand takes a fresh machine into the cluster with a join string.
func (h *machines) joinByHand(t *testing.T, i, through, nodes int) {
	t.Helper()
	var line string
	// a volume whose bricks change may be away for seconds
	lab.Eventually(t, 60*time.Second, "a join string", func() error {
		r := h.verb(t, through, "", "join-string")
		line = r.Out
		if r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.launch(t, i, nil)
	lab.Eventually(t, 60*time.Second, "applianced asks for answers", func() error {
		if r := h.verb(t, i, "", "status"); r.Code != status.ExitUnconfigured {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	out := must(t, h.verb(t, i, line, "join", "--node", fmt.Sprintf("node%d", i), "--address", h.addr(i)))
	if !strings.Contains(out, "ready: this node serves minions") {
		t.Errorf("join printed\n%s", out)
	}

	for k := 1; k <= 3; k++ {
		if h.runs[k] != nil {
			h.ready(t, k, nodes)
		}
	}
}

// joins joins without anybody, with a join string.
func (h *machines) joins(t *testing.T, i, through int) {
	t.Helper()
	h.launch(t, i, map[string]any{"join": strings.TrimSpace(must(t, h.verb(t, through, "", "join-string")))})
}

// states has a minion apply a state that lies on the volume.
func (h *machines) states(t *testing.T, i int, id string) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, "a state from the volume", func() error {
		r := h.salt(t, i, "salt", "-t", "30", id, "state.apply", "hello")
		if r.Code != 0 || !strings.Contains(r.Out, "succeed_without_changes") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// job runs a job and gives its id.
func (h *machines) job(t *testing.T, i int, id string) (jid string) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "a job", func() error {
		r := h.salt(t, i, "salt", "--async", id, "test.echo", "kept-for-later")
		if jid = regexp.MustCompile(`\d{20}`).FindString(r.Out); jid == "" {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
	h.kept(t, i, jid)
	return jid
}

// kept waits until node i knows the return of a job.
func (h *machines) kept(t *testing.T, i int, jid string) {
	t.Helper()
	lab.Eventually(t, 120*time.Second, "an old job", func() error {
		if r := h.salt(t, i, "salt-run", "--out", "json", "jobs.lookup_jid", jid); !strings.Contains(r.Out,
			"kept-for-later") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// well waits until all minions answer node i, which has the states and knows
// the job.
func (h *machines) well(t *testing.T, i int, jid string) {
	t.Helper()
	h.answer(t, i, volumeMinions...)
	h.states(t, i, "m3006")
	h.kept(t, i, jid)
}

var volumeMinions = []string{"m3006", "m3008"}

// startVolume makes three machines a cluster with a volume, see populate.
func startVolume(t *testing.T) (h *machines, jid string) {
	t.Helper()
	h = newMachines(t, 4)
	return h, h.populate(t)
}

// populate takes three machines to a cluster with a volume, with minions that
// answer, a state and a job.
func (h *machines) populate(t *testing.T) (jid string) {
	t.Helper()
	h.launch(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	h.ready(t, 1, 1)
	h.joins(t, 2, 1)
	h.ready(t, 2, 2)
	h.joinByHand(t, 3, 1, 3)
	h.minion(t, "m3006", lab.Versions()[0])
	h.minion(t, "m3008", lab.Newest)

	for _, id := range volumeMinions { // a node that was joined by hand accepts none by itself
		lab.Eventually(t, 120*time.Second, "the key of "+id, func() error {
			if r := h.verb(t, 2, "", "keys", "accept", id); r.Code != 0 {
				return fmt.Errorf("%s", r.Err)
			}
			return nil
		})
	}

	for i := 1; i <= 3; i++ {
		h.answer(t, i, volumeMinions...)
	}

	must(t, h.run(t, 2, "hello:\n  test.succeed_without_changes\n", "tee", "/srv/cluster/srv/salt/hello.sls"))
	h.states(t, 3, "m3008")
	return h.job(t, 2, "m3006")
}

// TestApplianceVolumeTLS forms a cluster whose volume uses TLS; nodes that join
// and one that replaces another get what they need by themselves.
func TestApplianceVolumeTLS(t *testing.T) {
	h := newMachines(t, 4)
	h.tls = true
	jid := h.populate(t)
	encrypted := func() {
		t.Helper()
		for i := 1; i <= 3; i++ {
			if out := must(t, h.verb(t, i, "", "storage", "tls")); !strings.Contains(out, "TLS is on") {
				t.Errorf("node%d: %s", i, out)
			}
		}

		info := must(t, h.run(t, 1, "", "gluster", "--mode=script", "volume", "info"))
		for _, want := range []string{"client.ssl: on", "server.ssl: on", "auth.ssl-allow: node1,node2,node3"} {
			if !strings.Contains(info, want) {
				t.Errorf("%s is not in\n%s", want, info)
			}
		}
	}

	encrypted()
	h.lost(t, 3)
	lab.Eventually(t, 90*time.Second, "node3 is replaced", func() error {
		if r := h.verb(t, 1, "", "replace", "--yes", "node3"); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.must(t, "boot", "3")
	h.joinByHand(t, 3, 2, 3)
	encrypted()
	h.answer(t, 3, volumeMinions...)
	h.kept(t, 3, jid)
}

// TestApplianceVolumeDayTwo goes through the life of a cluster on a volume of
// real glusterds while two minions are attached that nobody touches: a node is
// replaced, leaves, is removed, and joins by hand.
func TestApplianceVolumeDayTwo(t *testing.T) {
	h, jid := startVolume(t)
	t.Log("replace")
	h.lost(t, 3)
	lab.Eventually(t, 90*time.Second, "node3 is replaced", func() error {
		if r := h.verb(t, 1, "", "replace", "--yes", "node3"); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.must(t, "boot", "3")
	h.joinByHand(t, 3, 2, 3)
	h.well(t, 3, jid)
	t.Log("leave")
	lab.Eventually(t, 240*time.Second, "node2 leaves, when its copy is not needed any more", func() error {
		if r := h.verb(t, 2, "", "leave", "--yes"); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.lost(t, 2)
	h.ready(t, 1, 2)
	h.ready(t, 3, 2)
	h.well(t, 3, jid)
	t.Log("join again, as a new machine")
	h.must(t, "boot", "2")
	h.joinByHand(t, 2, 3, 3)
	t.Log("remove a dead node")
	h.lost(t, 1) // the one that formed the cluster
	lab.Eventually(t, 90*time.Second, "node1 is removed", func() error {
		if r := h.verb(t, 2, "", "remove", "--yes", "node1"); r.Code != 0 {
			return fmt.Errorf("%s", r.Err)
		}
		return nil
	})

	h.ready(t, 2, 2)
	h.ready(t, 3, 2)
	h.well(t, 2, jid)
	h.must(t, "boot", "1")
	h.joinByHand(t, 1, 2, 3)
	h.well(t, 1, jid)
}

// TestApplianceVolumeRecover loses two of three nodes. The last one says so,
// becomes a cluster of its own when it is told to, and two new machines join it,
// while two minions are attached that nobody touches.
func TestApplianceVolumeRecover(t *testing.T) {
	h, jid := startVolume(t)
	second := h.job(t, 1, "m3008")
	h.lost(t, 1)
	h.lost(t, 2)
	h.noQuorum(t, 3)
	lab.Eventually(t, 120*time.Second, "the volume has stopped", func() error {
		r := h.verb(t, 3, "", "recover", "--new-cluster", "--yes")
		if r.Code != 0 {
			return fmt.Errorf("%+v", r)
		}
		t.Log(r.Out)
		return nil
	})

	h.ready(t, 3, 1)

	// A minion of 3006 that takes a lost master for a good one, since it has its
	// session key from before, waits for that one to come back: it fires its start
	// event there, and forgets to look at its masters when that fails
	// (salt/minion.py, handle_event and _fire_master_minion_start).
	h.answer(t, 3, "m3008")
	h.kept(t, 3, jid)
	h.kept(t, 3, second)
	for _, i := range []int{1, 2} {
		h.must(t, "boot", fmt.Sprint(i))
		h.joins(t, i, 3)
		h.ready(t, i, i+1)
	}

	for i := 1; i <= 3; i++ {
		h.ready(t, i, 3)
		h.well(t, i, jid)
	}
}

// noQuorum waits until the last of three nodes says what has happened, and that
// its minions are served meanwhile, and types what it says is to be done.
func (h *machines) noQuorum(t *testing.T, i int) {
	t.Helper()
	lab.Eventually(t, 180*time.Second, "the status of the last node", func() error {
		var d status.Document
		r := h.verb(t, i, "", "status", "--json")
		if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
			return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
		}

		k := slices.IndexFunc(d.Problems, func(p status.Problem) bool { return p.Code == status.VolumeNoQuorum })
		if text := h.verb(t, i, "", "status"); k < 0 || d.ServingSince == nil ||
			text.Code != status.ExitDegraded || !strings.HasPrefix(text.Out, "DEGRADED  cluster lab") {
			return fmt.Errorf("exit %d: %s", text.Code, text.Out)
		}

		p := d.Problems[k]
		if !strings.Contains(p.Cause, "of 3 bricks run") || !slices.Contains(p.Hides, status.BrickDown) ||
			!strings.Contains(p.Next, "applianced recover --new-cluster") {
			return fmt.Errorf("%+v", p)
		}

		t.Logf("%s %s: %s; next: %s", p.Code, p.Title, p.Cause, p.Next)
		return nil
	})

	bundle := filepath.Join(h.dir, "bundle.tar.gz") // whatever the volume answers
	must(t, h.verb(t, i, "", "support", "-o", bundle))
	if out := must(t, lab.Run(t, 60*time.Second, "/bin/tar", "-xzOf", bundle)); !strings.Contains(out,
		string(status.VolumeNoQuorum)) {
		t.Errorf("the bundle does not have the status: %.2000s", out)
	}

	if r := h.verb(t, i, "", "recover", "--new-cluster"); r.Code != 64 ||
		!strings.Contains(r.Err, "say --yes") || !strings.Contains(r.Err, "node1") {
		t.Errorf("recover --new-cluster: %+v", r)
	}
}

// TestApplianceVolumeBackup loses a whole cluster and makes it again on three
// fresh machines from a backup, with the minions as they are.
func TestApplianceVolumeBackup(t *testing.T) {
	h, jid := startVolume(t)
	phrase, archive := filepath.Join(h.dir, "phrase"), filepath.Join(h.dir, "cluster.age")
	if err := os.WriteFile(phrase, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "the job and its return are handed over to the volume", func() error {
		// The word stands in the job and in its return.
		if r := h.run(t, 2, "", "grep", "-rahoF", "kept-for-later", "/srv/cluster/pki/jobs"); strings.Count(r.Out, "\n") < 2 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})

	must(t, h.verb(t, 2, "", "backup", "--jobs", "-o", archive, "--passphrase-file", phrase))
	must(t, h.verb(t, 2, "", "restore", "--check", archive, "--passphrase-file", phrase))
	for _, i := range []int{2, 1, 3} {
		h.lost(t, i)
	}

	for i := 1; i <= 3; i++ {
		h.must(t, "boot", fmt.Sprint(i))
	}

	h.launch(t, 1, map[string]any{"mode": "form"})
	h.ready(t, 1, 1)
	must(t, h.verb(t, 1, "", "restore", "--force", archive, "--passphrase-file", phrase))
	h.ready(t, 1, 1)
	h.answer(t, 1, volumeMinions...)
	h.joins(t, 2, 1)
	h.ready(t, 2, 2)
	h.joinByHand(t, 3, 2, 3)

	for _, i := range slices.Backward([]int{1, 2, 3}) {
		h.answer(t, i, volumeMinions...)
	}

	h.states(t, 3, "m3006")
	h.kept(t, 2, jid)
}

// TestApplianceVolumeApply writes the master's options on one node and has them
// applied from another one at once: all nodes look at the volume first.
func TestApplianceVolumeApply(t *testing.T) {
	h, jid := startVolume(t)
	for i, want := range []string{"one", "two"} {
		must(t,
			h.run(t, 1+i, "nodegroups: {"+want+": L@m3008}\n", "sh", "-c", "cat > /srv/cluster/etc/master.d/own.conf"))
		r := h.verb(t, 3-i, "", "config", "apply", "--yes", "--json")
		var p options.Progress
		if err := json.Unmarshal([]byte(r.Out), &p); err != nil || r.Code != 0 || p.Result == nil ||
			len(p.Result.Names(options.New)) != 3 {
			t.Fatalf("%v: %+v", err, r)
		}
	}
	h.well(t, 3, jid)
}

// TestApplianceVolumeTruth is TestOneTruth with its folder on the volume of three
// nodes, as one of them has it mounted.
func TestApplianceVolumeTruth(t *testing.T) {
	h := newMachines(t, 3)
	h.launch(t, 1, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	h.ready(t, 1, 1)
	h.joins(t, 2, 1)
	h.ready(t, 2, 2)
	h.joins(t, 3, 1)
	h.ready(t, 3, 3)
	const folder = "/srv/cluster/truth"
	must(t, h.run(t, 1, "", "mkdir", folder))
	self, err := os.Executable()
	here, err2 := os.Getwd()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := h.exec(ctx, 1, "env", "-C", here, self, "-test.run=^TestOneTruth$", "-test.v", "-test.timeout=19m")
	cmd.Env = append(cmd.Env, sharedFolder+"="+folder)
	out, err := cmd.CombinedOutput()
	t.Logf("on the volume:\n%s", out)

	if err != nil || !strings.Contains(string(out), "--- PASS: TestOneTruth") {
		t.Fatal(err)
	}
}
