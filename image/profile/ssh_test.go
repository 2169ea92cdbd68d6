package profile_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSSHAlgorithms: sshd takes only what is strong, and the OpenSSH of Debian
// knows each name: one that it does not know would keep sshd from starting.
func TestSSHAlgorithms(t *testing.T) {
	text, err := os.ReadFile("overlay/etc/ssh/sshd_config.d/10-saltern.conf")
	if err != nil {
		t.Fatal(err)
	}

	found := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		lists := map[string]string{
			"KexAlgorithms":            "kex",
			"Ciphers":                  "cipher",
			"MACs":                     "mac",
			"HostKeyAlgorithms":        "HostKeyAlgorithms",
			"PubkeyAcceptedAlgorithms": "PubkeyAcceptedAlgorithms",
		}
		if len(f) != 2 || lists[f[0]] == "" {
			continue
		}

		found++
		for _, weak := range []string{"sha1", "cbc", "ssh-rsa", "umac-64", "group1-", "group14-", "arcfour",
			"3des", "ssh-dss"} {
			if strings.Contains(f[1], weak) {
				t.Errorf("%s: %s is weak", f[0], weak)
			}
		}

		out, err := exec.Command("ssh", "-Q", lists[f[0]]).Output()
		if err != nil {
			t.Skip("NOT TESTED: no ssh to ask: ", err)
		}

		known := strings.Fields(string(out))
		for _, name := range strings.Split(f[1], ",") {
			if !slices.Contains(known, name) {
				t.Errorf("%s: OpenSSH does not know %s", f[0], name)
			}
		}
	}

	if found != 5 {
		t.Errorf("%d lists, want 5", found)
	}
}

// TestUnitsThatAskNameServers: sshd -t and nft ask name servers for the names in what they
// read, and would refuse it without a network.
func TestUnitsThatAskNameServers(t *testing.T) {
	for _, name := range []string{"saltern-guards.service", "saltern-firewall.service"} {
		text, err := os.ReadFile("overlay/usr/lib/systemd/system/" + name)
		if err != nil {
			t.Fatal(err)
		}
		families := regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_INET AF_INET6`)
		if strings.Contains(string(text), "PrivateNetwork=yes") || !families.Match(text) {
			t.Errorf("%s cannot ask a name server", name)
		}
	}
}
