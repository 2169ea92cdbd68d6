//go:build boot

package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// identity is what must not be the same on two machines: machine-id and public SSH key.
type identity map[string]string

// TestTemplate: a machine that was booted, not set up and switched off is copied twice. Each
// copy has a machine-id and an SSH key of its own; once it is set up it keeps them, also in
// another firmware (F8).
func TestTemplate(t *testing.T) {
	template := newVM(t, vmOptions{number: 40, uuid: "11111111-2222-4333-8444-000000000000"})
	template.start(t)
	(&pages{t: t, x: template.line, wait: patience}).lead()
	lab.Eventually(t, patience, "the template has an SSH key", func() error {
		return exec.Command("ssh-keyscan", "-T", "30", "-p", "2222", template.address()).Run()
	})
	template.switchOff(t)
	of := template.identityOnDisk(t)
	t.Log("template: ", of)

	all := []identity{of}
	for i := 1; i <= 2; i++ {
		v := newVM(t,
			vmOptions{
				number:  40 + i,
				copyOf:  template.disk,
				uuid:    fmt.Sprintf("11111111-2222-4333-8444-00000000000%d", i),
				answers: alone,
			})

		v.start(t)
		v.wait(t, "HEALTHY", "applianced status")
		own := v.identity(t)
		t.Logf("copy %d: %v", i, own)

		for _, other := range all {
			for name, value := range own {
				if value == "" || value == other[name] {
					t.Errorf("copy %d has %s of another machine, or none: %q", i, name, value)
				}
			}
		}

		all = append(all, own)

		if i == 2 {
			v.switchOff(t)
			v.uuid = "99999999-2222-4333-8444-000000000000"
			v.start(t)
			v.wait(t, "HEALTHY", "applianced status")
			if now := v.identity(t); fmt.Sprint(now) != fmt.Sprint(own) {
				t.Errorf("a node that was moved has %v, before %v", now, own)
			}
		}

		v.cut()
	}
}

// identityFiles are the files of a machine's identity, by their names below /etc.
var identityFiles = []string{"machine-id", "ssh/ssh_host_ed25519_key.pub"}

// identity asks a machine that runs.
func (v *vm) identity(t *testing.T) identity {
	t.Helper()
	out := identity{}
	for _, name := range identityFiles {
		out[name] = strings.TrimSpace(v.run(t, "cat /etc/"+name))
	}
	return out
}

// identityOnDisk reads the disk of a machine that is off.
func (v *vm) identityOnDisk(t *testing.T) identity {
	t.Helper()
	raw := v.dir + "/disk.raw"
	tool(t, "qemu-img", "convert", "-O", "raw", v.disk, raw)
	defer os.Remove(raw)
	start := partitionStart(t, raw, "data")
	out := identity{}
	for _, name := range identityFiles {
		text, _ := exec.Command("debugfs", "-R", "cat /state/etc/up/"+name,
			fmt.Sprintf("%s?offset=%d", raw, start)).Output()
		out[name] = strings.TrimSpace(string(text))
	}
	return out
}

// partitionStart returns where a partition of a raw disk begins, in bytes.
func partitionStart(t *testing.T, disk, name string) int64 {
	t.Helper()
	out, err := exec.Command("sfdisk", "--json", disk).Output()
	if err != nil {
		t.Fatalf("sfdisk: %v", err)
	}

	var table struct {
		PartitionTable struct {
			Partitions []struct {
				Name  string
				Start int64
			}
		}
	}

	if err := json.Unmarshal(out, &table); err != nil {
		t.Fatal(err)
	}

	for _, p := range table.PartitionTable.Partitions {
		if p.Name == name {
			return p.Start * 512
		}
	}

	t.Fatalf("no partition %s: %s", name, out)
	return 0
}

// switchOff presses the machine's power button and waits until it is off.
func (v *vm) switchOff(t *testing.T) {
	t.Helper()
	v.hangUp()
	if err := (screen{v}).monitor("system_powerdown"); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, patience, "the machine is off", func() error {
		select {
		case <-v.ended:
			return nil
		case <-time.After(time.Second):
			return errors.New("it runs")
		}
	})

	told, err := os.ReadFile(v.dir + "/serial.log")
	if err != nil || bytes.Contains(told, []byte("Failed unmounting")) {
		t.Errorf("a shutdown leaves file systems mounted: %v\n%s", err, lab.Tail(v.dir+"/serial.log", 20))
	}

	v.cut()
}
