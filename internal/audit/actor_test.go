package audit

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// proc makes the folder of a process.
func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhoIs(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		uid      int
		sudo     string
		user, as string
		proof    Proof
	}{
		"root who logged in":       {map[string]string{"loginuid": "0"}, 0, "", "root", "", Login},
		"su by another":            {map[string]string{"loginuid": "61234\n"}, 0, "", "61234", "root", Login},
		"sudo says another":        {map[string]string{"loginuid": "61234"}, 0, "carol", "61234", "root", Login},
		"sudo where none logs in":  {map[string]string{"loginuid": "4294967295"}, 0, "carol", "carol", "root", Sudo},
		"sudo of another user":     {nil, 61234, "carol", "61234", "", Process},
		"a service":                {map[string]string{"loginuid": "4294967295"}, 0, "", "root", "", Process},
		"sudo from root":           {nil, 0, "root", "root", "", Process},
		"no number":                {map[string]string{"loginuid": "x"}, 0, "", "root", "", Process},
		"a number that is too big": {map[string]string{"loginuid": "99999999999"}, 0, "", "root", "", Process},
	} {
		a := whoIs(proc(t, c.files), c.uid, c.sudo)
		if a.User != c.user || a.As != c.as || a.Proof != c.proof || a.From != Local || *a.UID != c.uid {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// A program tells a tool of ours for whom it acts; who has logged in counts more.
func TestSelf(t *testing.T) {
	env := func(k string) string {
		return map[string]string{ActorEnv: "login:dora", "SUDO_USER": "carol"}[k]
	}
	a := Self(env)
	if login, ok := loginUID("/proc/self"); ok {
		if a.Proof != Login || a.User != UserName(login) {
			t.Errorf("%+v", a)
		}
	} else if a.User != "dora" || a.Proof != Login || a.As != UserName(os.Getuid()) {
		t.Errorf("%+v", a)
	}
}

// Nothing is believed of a process that has another uid than its socket had.
func TestPeerProcess(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.Env = []string{"SUDO_USER=carol"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

	// Start returns while the kernel still loads the program, and its
	// environment is empty until then. What it copies shows that it runs.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}

	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	uid := os.Getuid()
	if _, ok := loginUID("/proc/self"); !ok && uid == 0 {
		if a := PeerProcess(cmd.Process.Pid, 0); a.User != "carol" || a.Proof != Sudo || a.As != "root" {
			t.Errorf("%+v", a)
		}
	}

	for _, pid := range []int{cmd.Process.Pid, 0, -1, 1 << 30} {
		if a := PeerProcess(pid, 61234); a.User != strconv.Itoa(61234) || a.Proof != Process || *a.UID != 61234 {
			t.Errorf("%d: %+v", pid, a)
		}
	}
}
