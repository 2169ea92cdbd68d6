//go:build e2e

package storage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/glusterctl/cert"
	"saltern/supervisor/nodes"
)

// sslDir is private to each pretend machine.
const sslDir = cert.Dir

// authorityTo gives a node what one that joins gets over the node API.
func (h *hosts) authorityTo(t *testing.T, i int) {
	t.Helper()
	dir := filepath.Join(h.dir, "authority")
	h.on(t, 1, "sh", "-c", "mkdir -p "+dir+" && cp /data/saltern/storage/tls/authority.* "+dir)
	h.on(t, i, "sh", "-c", "mkdir -p /data/saltern/storage/tls && cp "+dir+"/authority.* /data/saltern/storage/tls/")
}

// wear gives machine i another certificate; it does not touch what runs.
func (h *hosts) wear(t *testing.T, i int, ca cert.Pair, name string) {
	t.Helper()
	p, err := ca.Issue(name, rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(h.dir, "certificate")
	if err == nil {
		err = cert.Install(dir, ca.Cert, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.on(t, i, "sh", "-c", "cp "+dir+"/glusterfs.* "+sslDir)
}

// mounts reports whether machine i can mount the volume beside what it has.
func (h *hosts) mounts(i int) (bool, string) {
	out, err := h.run(2*time.Minute, "exec", fmt.Sprint(i), "sh", "-c",
		"mkdir -p /run/beside; timeout 30 mount -t glusterfs -o log-file=/run/beside.log node1:/cluster /run/beside && ls /run/beside/nodes; r=$?; umount -l /run/beside 2>/dev/null; exit $r")
	return err == nil, out
}

var brickPort = regexp.MustCompile(`(?m)^Brick node1:\S+\s+(\d+)`)

// The connections of a volume with TLS: who has no certificate, one of another
// authority, or one with a name that is not a member's, gets nothing; nodes join,
// are removed and replaced.
func TestLongTLS(t *testing.T) {
	h := newHosts(t, 3)
	h.table.StorageTLS = true
	h.member(1)
	h.spread(t, 1)
	h.on(t, 1, "sh", "-c", "mkdir -p /data/saltern/storage && touch /data/saltern/storage/forms-the-volume")
	h.start(t, 1)
	h.settled(t, 2*time.Minute, 1, 1)
	h.member(2)
	h.member(3)
	h.authorityTo(t, 2)
	h.authorityTo(t, 3)
	h.spread(t, 1, 2, 3)
	h.start(t, 2)
	h.start(t, 3)
	h.settled(t, 5*time.Minute, 3, 1, 2, 3)

	for i := 1; i <= 3; i++ {
		h.on(t, i, "sh", "-c", fmt.Sprintf("echo written on %d >/srv/cluster/pki/w%d", i, i))
	}

	for i := 1; i <= 3; i++ {
		if got := h.on(t, i, "sh", "-c",
			"cat /srv/cluster/pki/w1 /srv/cluster/pki/w2 /srv/cluster/pki/w3"); strings.Count(got, "written") != 3 {
			t.Errorf("node%d reads %q", i, got)
		}
	}

	if out := h.on(t, 1, filepath.Join(h.bin, "applianced"), "--config", h.path(1, "yaml"), "storage",
		"tls"); !strings.Contains(out, "TLS is on") {
		t.Errorf("storage tls: %s", out)
	}

	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(h.dir, "authority", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}

	ours := cert.Pair{Cert: read("authority.pem"), Key: read("authority.key")}
	theirs, err := cert.New("cluster", rand.Reader, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	// Node 2 is on the list of addresses; its certificate alone decides.
	if ok, out := h.mounts(2); !ok {
		t.Fatalf("a member cannot mount: %s", out)
	}

	h.wear(t, 2, theirs, "node2")
	if ok, out := h.mounts(2); ok {
		t.Errorf("mounted with a certificate of another authority: %s", out)
	}

	h.wear(t, 2, ours, "node9")
	if ok, out := h.mounts(2); ok {
		t.Errorf("mounted with a name that is no member's: %s", out)
	}

	h.wear(t, 2, ours, "node2")
	if ok, out := h.mounts(2); !ok {
		t.Errorf("a member cannot mount any more: %s", out)
	}

	// A machine without anything.
	h.prepareFourth(t)
	status := h.on(t, 1, "gluster", "--mode=script", "volume", "status", "cluster")
	port := brickPort.FindStringSubmatch(status)
	if port == nil {
		t.Fatalf("no port of a brick in:\n%s", status)
	}

	for _, p := range []string{port[1], "24007"} {
		// The server ends the connection of a stranger and keeps that of a member.
		if kept, out := h.connects(4, p, ""); kept {
			t.Errorf("port %s took a connection without a certificate: %s", p, out)
		}
		if kept, out := h.connects(2, p, " -cert "+sslDir+"/glusterfs.pem -key "+sslDir+"/glusterfs.key"); !kept {
			t.Errorf("port %s did not take a member's connection: %s", p, out)
		}
	}

	if ok, out := h.mounts(4); ok {
		t.Errorf("mounted without a certificate: %s", out)
	}

	if out, err := h.run(time.Minute, "exec", "4", "timeout", "20", "gluster", "--mode=script",
		"--remote-host="+h.net+".11", "volume", "info"); err == nil && strings.Contains(out, "cluster-1") {
		t.Errorf("learned about the volume without a certificate: %s", out)
	}

	// Node 3 is removed, and machine 4 takes its place.
	h.table.Nodes[2].State = nodes.Removed
	h.member(4)
	h.authorityTo(t, 4)
	h.spread(t, 1, 2, 4)
	h.start(t, 4)
	h.settled(t, 5*time.Minute, 3, 1, 2, 4)
	allow := h.on(t, 1, "gluster", "--mode=script", "volume", "get", "cluster", "auth.ssl-allow")
	if strings.Contains(allow, "node3") || !strings.Contains(allow, "node4") {
		t.Errorf("names that are allowed: %s", allow)
	}

	if got := h.on(t, 4, "cat", "/srv/cluster/pki/w3"); got != "written on 3\n" {
		t.Errorf("node4 reads %q", got)
	}

	if ok, out := h.mounts(3); ok {
		t.Errorf("a node that was removed mounts: %s", out)
	}

	// The name alone keeps it out, from an address that is allowed as well.
	h.wear(t, 2, ours, "node3")
	if ok, out := h.mounts(2); ok {
		t.Errorf("mounted with the name of a node that was removed: %s", out)
	}

	h.wear(t, 2, ours, "node2")
}

// connects reports whether node 1 keeps a TLS connection of machine i to a port.
func (h *hosts) connects(i int, port, options string) (bool, string) {
	out, err := h.run(time.Minute, "exec", fmt.Sprint(i), "sh", "-c",
		fmt.Sprintf("sleep 12 | timeout 8 openssl s_client -connect %s.11:%s -quiet%s", h.net, port, options))
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 124, fmt.Sprintf("%v: %s", err, out)
}
