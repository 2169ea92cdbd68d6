package setup

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	mathrand "math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// sshKeys makes a key of each kind that sshd of the image takes.
func sshKeys(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{
		"sk": "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHWAAAABHNzaDo= token",
	}
	add := func(name string, key any) {
		public, err := ssh.NewPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))) + " Doe, Jane # at work"
	}

	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	add("ed25519", public)
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		private, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		add(curve.Params().Name, &private.PublicKey)
	}

	private, err := rsa.GenerateKey(rand.Reader, leastRSABits)
	if err != nil {
		t.Fatal(err)
	}

	add("rsa", &private.PublicKey)
	return out
}

// TestSSHKeysAreParsed: a key that sshd could not use is refused where it is given,
// also when one letter of it was lost; whoever has nothing else could not log in (M1).
// ssh-keygen is the judge of those that are taken.
func TestSSHKeysAreParsed(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Log("NOT COMPARED with ssh-keygen: ", err)
	}

	judge := func(t *testing.T, line string, k SSHKey) {
		t.Helper()
		if keygen == "" {
			return
		}

		cmd := exec.Command(keygen, "-l", "-f", "-")
		cmd.Stdin = strings.NewReader(line + "\n")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), k.Fingerprint) {
			t.Errorf("%q is %s; ssh-keygen: %v %s", line, k.Fingerprint, err, out)
		}
	}

	const seed = 7
	random := mathrand.New(mathrand.NewPCG(seed, seed))
	for name, line := range sshKeys(t) {
		t.Run(name, func(t *testing.T) {
			k, err := ParseSSHKey(line)
			if err != nil || k.Type != strings.Fields(line)[0] || k.Comment == "" {
				t.Fatalf("%q: %+v %v", line, k, err)
			}

			judge(t, line, k)

			start := strings.Index(line, "AAAA")
			end := start + strings.Index(line[start:], " ")
			for range 60 {
				at := start + 1 + random.IntN(end-start-1)
				for _, broken := range []string{line[:at] + line[at+1:], line[:at] + "x" + line[at:],
					line[:at], line[:at] + " " + line[at:]} {
					if k, err := ParseSSHKey(broken); err == nil {
						t.Errorf("taken: %q as %+v", broken, k)
					}
				}

				other := []byte(line)
				other[at] = "ABCxyz019+/="[random.IntN(12)]
				if k, err := ParseSSHKey(string(other)); err == nil && at%5 == 0 {
					judge(t, string(other), k) // another key: its fingerprint says so
				}
			}
		})
	}
}

// TestSSHKeysRefused: what people paste instead of a public key, and what they are told.
func TestSSHKeysRefused(t *testing.T) {
	const good = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW x"
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}

	public, err := ssh.NewPublicKey(&short.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	for line, want := range map[string]string{
		"": "is not a public key", "x": "is not a public key", "ssh-rsa": "is not a public key", "ssh-dss AAAA": "is not a public key",
		"ssh-rsa AAAAB3nonsense jane":                               "is damaged",
		strings.Replace(good, "ed25519", "rsa", 1):                  "is damaged",
		strings.Replace(good, " x", "AAAA x", 1):                    "is damaged",
		"from=\"10.0.0.0/8\" " + good:                               "has options",
		"restrict " + good:                                          "has options",
		"cert-authority " + good:                                    "has options",
		"ssh-ed25519-cert-v01@openssh.com AAAA":                     "is a certificate",
		"-----BEGIN OPENSSH PRIVATE KEY-----":                       "is a private key",
		good + "\n" + good:                                          "more than one line",
		good + strings.Repeat("x", maxSSHKey):                       "more than 8192 bytes",
		string(ssh.MarshalAuthorizedKey(public)):                    "more than one line",
		strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))): "has 1024 bits",
	} {
		if k, err := ParseSSHKey(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %+v %v, want %q", line, k, err, want)
		}
	}

	// A whole file in one element of the answers, with the line ends of another system.
	a := Answers{Admin: Admin{SSHKeys: []string{"# mine\r\n" + good + "\r\n" + good + " y\r\n", good + "\n"}}}
	c := &checker{a: a}
	c.checkAdmin()
	if len(c.faults) > 0 || fmt.Sprint(c.a.Admin.SSHKeys) != fmt.Sprint([]string{good, good + " y", good}) {
		t.Errorf("%q %v", c.a.Admin.SSHKeys, c.faults)
	}
}

func FuzzParseSSHKey(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW x")
	f.Add("from=\"a\" ssh-rsa AAAAB3NzaC1yc2E")
	f.Fuzz(func(t *testing.T, line string) {
		if k, err := ParseSSHKey(line); err == nil && (k.Fingerprint == "" || !letsIn(line)) {
			t.Errorf("%q: %+v", line, k)
		}
	})
}
