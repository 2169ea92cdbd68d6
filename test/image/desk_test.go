//go:build nspawn

package image

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/tutorial"
)

// desk is the reader's own computer: commands are typed in a folder, by shells that hand
// their variables on.
type desk struct {
	dir    string
	before string // functions of the shell that stand before programs
	env    []string

	outputs []string // of all commands
}

func (d *desk) Run(ctx context.Context, command string) (string, error) {
	const script = `cd "$0"; if [ -e kept ]; then . ./kept; fi; eval "$1"; eval "$2"; STATUS=$?
NAMES=$(compgen -v | grep -x '[a-z][a-z_]*'); [ -z "$NAMES" ] || declare -p $NAMES >kept; exit $STATUS`
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, d.dir, d.before, command)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + d.dir, "LC_ALL=C.UTF-8"}, d.env...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	d.outputs = append(d.outputs, string(out))
	return string(out), err
}

func (d *desk) Put(path, text string) error {
	return os.WriteFile(filepath.Join(d.dir, filepath.Base(path)), []byte(text), 0o600)
}

// typeOn types the steps of a page that are for one machine.
func typeOn(t *testing.T, page, name string, m tutorial.Machine) (text string, steps []tutorial.Step) {
	t.Helper()
	b, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}

	all, err := tutorial.Read(string(b))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}

	for _, s := range all {
		if len(s.On) == 1 && s.On[0] == name {
			steps = append(steps, s)
		}
	}

	err = tutorial.Type(t.Context(), steps, map[string]tutorial.Machine{name: m},
		func(where, command string, times int, took time.Duration) {
			t.Logf("%6.1f s  %s$ %s (%d)", took.Seconds(), where, command, times)
		})
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}

	return string(b), steps
}

func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getenv("SALTERN_PACKAGES") == "" {
		t.Skip("NOT TESTED: by hand: make test-tutorials")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(filepath.Join("/usr/bin", p)); err != nil {
			t.Skipf("NOT TESTED: /usr/bin/%s is missing: scripts/deps tutorials", p)
		}
	}
}

// ec2 notes what Amazon's client sends and answers as EC2 would, in form only.
type ec2 struct {
	mu    sync.Mutex
	calls []url.Values
}

var ec2Answers = map[string]string{
	"CreateSecurityGroup":           "<groupId>sg-0a1b2c</groupId>",
	"AuthorizeSecurityGroupIngress": "<return>true</return>",
	"DescribeImages": "<imagesSet><item><imageId>ami-new</imageId><creationDate>2026-09-01T00:00:00.000Z</creationDate></item>" +
		"<item><imageId>ami-old</imageId><creationDate>2025-01-01T00:00:00.000Z</creationDate></item></imagesSet>",
	"RunInstances": "<reservationId>r-1</reservationId><instancesSet/>",
}

func (e *ec2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := r.ParseForm()
	action := r.PostForm.Get("Action")
	answer, ok := ec2Answers[action]
	if err != nil || !ok {
		http.Error(w, "no such action", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.calls = append(e.calls, r.PostForm)
	e.mu.Unlock()
	fmt.Fprintf(w,
		`<%sResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>%s</%[1]sResponse>`,
		action, answer)
}

// TestTutorialEC2 types the commands for EC2 of the page about failover. AWS has no part
// in it: Amazon's client checks them against what it knows of EC2, and sends them to a
// server here that answers in form only. What EC2 would do with them is not tested.
func TestTutorialEC2(t *testing.T) {
	needs(t, "aws")
	cloud := &ec2{}
	server := httptest.NewServer(cloud)
	defer server.Close()

	d := &desk{dir: t.TempDir(), before: `aws() { command aws --endpoint-url "` + server.URL + `" "$@"; }`,
		env: []string{"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_DEFAULT_REGION=eu-central-1",
			"AWS_PAGER=", "AWS_EC2_METADATA_DISABLED=true"}}
	typeOn(t, "docs/tutorials/failover-ec2.md", "aws", d)
	want := []map[string]string{
		{"Action": "CreateSecurityGroup", "GroupName": "salt-masters"},
		{
			"Action":                     "AuthorizeSecurityGroupIngress",
			"GroupId":                    "sg-0a1b2c",
			"IpPermissions.1.FromPort":   "4505",
			"IpPermissions.1.ToPort":     "4506",
			"IpPermissions.1.IpProtocol": "tcp",
		},
		{
			"Action":                   "AuthorizeSecurityGroupIngress",
			"GroupId":                  "sg-0a1b2c",
			"IpPermissions.1.FromPort": "22",
			"IpPermissions.1.ToPort":   "22",
		},
		{"Action": "DescribeImages", "Owner.1": "136693071363", "Filter.1.Name": "name"},
		{
			"Action":                         "RunInstances",
			"ImageId":                        "ami-new",
			"SecurityGroupId.1":              "sg-0a1b2c",
			"TagSpecification.1.Tag.1.Value": "salt-a",
			"InstanceType":                   "t3.small",
		},
		{
			"Action":                         "RunInstances",
			"ImageId":                        "ami-new",
			"SecurityGroupId.1":              "sg-0a1b2c",
			"TagSpecification.1.Tag.1.Value": "salt-b",
		},
	}
	if len(cloud.calls) != len(want) {
		t.Fatalf("sent were %d requests: %v", len(cloud.calls), cloud.calls)
	}

	for i, w := range want {
		for k, v := range w {
			if got := cloud.calls[i].Get(k); got != v {
				t.Errorf("request %d, %s: %s is %q, want %q", i, w["Action"], k, got, v)
			}
		}
	}
}

// qemuStands has QEMU take its command line, tell what it has, and end, with the machine
// stopped before its first instruction. The keys are those of -nographic. It has a network
// of its own, since the ports of the page may be in use.
const qemuStands = `qemu-system-x86_64() {
  local line=" $* "
  [ -e /dev/kvm ] || line=${line/ -accel kvm -cpu host / -cpu max } # as the page says
  printf '\001cinfo block\ninfo usernet\nquit\n' | timeout 60 unshare -n sh -c "ip link set lo up && exec qemu-system-x86_64 -S $line"
}`

// TestTutorialQEMU types the page about QEMU up to the boot: the disk, the answers, and
// the command line. The boot itself is what make test-boot does.
func TestTutorialQEMU(t *testing.T) {
	needs(t, "qemu-system-x86_64", "qemu-img", "xorriso", "ssh-keygen")
	d := &desk{dir: t.TempDir(), before: qemuStands}
	for _, dir := range []string{"bin", "dist", ".ssh"} {
		if err := os.Mkdir(filepath.Join(d.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.Symlink(lab.Bin(t, "applianced"), filepath.Join(d.dir, "bin/applianced")); err != nil {
		t.Fatal(err)
	}

	// The image that is built by the page has this name and an own file system; nothing
	// reads it before the boot.
	for _, c := range []string{"qemu-img create -q -f qcow2 dist/saltern-cloud.qcow2 3G",
		"ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519"} {
		if out, err := d.Run(t.Context(), c); err != nil {
			t.Fatalf("%s: %v %s", c, err, out)
		}
	}

	page, steps := typeOn(t, "docs/tutorials/qemu.md", "pc", d)
	command := ""
	for _, s := range steps {
		if strings.HasPrefix(s.Command, "qemu-system-x86_64") {
			command = s.Command
		}
	}

	option := regexp.MustCompile("`(-drive file=seed.iso[^`]*)`").FindStringSubmatch(page)
	if command == "" || option == nil {
		t.Fatal("the page does not show how QEMU is started, and with what for the answers")
	}

	iso, err := os.ReadFile(filepath.Join(d.dir, "seed.iso"))
	if err != nil || len(iso) < 33000 || strings.TrimSpace(string(iso[32808:32840])) != "CIDATA" ||
		!strings.Contains(string(iso), "#saltern\nmode: form\n") || !strings.Contains(string(iso), "ssh-ed25519 AAAA") {
		t.Errorf("the disk with the answers has %d bytes, %v", len(iso), err)
	}

	out, err := d.Run(t.Context(), command+" "+option[1])
	if err != nil {
		t.Errorf("QEMU with the answers: %v", err)
	}

	shown := map[string]string{out: "seed.iso", strings.Join(d.outputs[:len(d.outputs)-1], "\n"): "salt-1.qcow2"}
	for text, disk := range shown {
		for _, want := range []string{disk, "dist/saltern-cloud.qcow2", " 2222 ", " 4505 ", " 4506 "} {
			if !strings.Contains(text, want) {
				t.Errorf("QEMU does not show %q:\n%s", want, text)
			}
		}
	}
}
