package mastertest

import (
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/test/address"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// StartCluster starts n masters that share a directory of keys. Each master after the first is
// configured with the address of the master before it.
func StartCluster(t *testing.T, n int, more ...string) []*Master {
	t.Helper()
	return startCluster(t, n, (*Master).TryStart, more...)
}

func startCluster(t *testing.T, n int, start func(r *Master, options string) error, more ...string) []*Master {
	t.Helper()
	shared := t.TempDir()
	// The test minions know the cluster key that was recorded with the captures.
	check.Must(t, crypt.SavePrivate(filepath.Join(shared, "cluster.pem"), KeyPair(t, "masterA"), ""))
	check.Must(t, crypt.SavePublic(filepath.Join(shared, "cluster.pub"), &KeyPair(t, "masterA").PublicKey))
	check.Must(t, os.Mkdir(filepath.Join(shared, "peers"), 0o700))
	net := fmt.Sprintf("127.%d.%d.", 1+mathrand.IntN(250), mathrand.IntN(250))
	port := int(address.Free(t, net+"1").Port())
	var out []*Master
	for i := range n {
		r, options := newMember(t, shared, fmt.Sprint(net, i+1), net, port, i)
		check.Must(t, start(r, options+strings.Join(more, "")))
		t.Cleanup(func() { r.Stop() }) // the last one, if the master is started again
		out = append(out, r)
	}
	return out
}

// newMember returns a master of a cluster that is not started, and its options.
func newMember(t *testing.T, shared, host, net string, port, i int) (r *Master, options string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "saltern")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r = &Master{T: t, Dir: dir, Log: &logged.Buffer{}, Host: host}
	check.Must(t, os.MkdirAll(r.Path("pki"), 0o700))

	// Use recorded keys, because generating keys is slow.
	own, err := crypt.LoadPrivate(TestData(t, "cluster", "keys",
		[]string{"10.27.12.13", "10.27.7.126", "10.27.3.73"}[i]+".pem"),
		"")
	check.Must(t, err)
	check.Must(t, crypt.SavePrivate(r.Path("pki", host+".pem"), own, ""))
	check.Must(t, crypt.SavePublic(r.Path("pki", host+".pub"), &own.PublicKey))
	options = fmt.Sprintf("id: %s\ncluster_id: test\ncluster_pki_dir: %s\ncluster_pool_port: %d\ncluster_secret: a secret of the test\n",
		host, shared, port)
	if i > 0 {
		options += fmt.Sprintf("cluster_peers: [%s%d]\n", net, i)
	}
	return r, options
}

// AwaitLinks waits until each master is connected to all others.
func AwaitLinks(t *testing.T, ms []*Master) {
	t.Helper()
	await.That(t, "links between the masters", func() bool {
		for _, r := range ms {
			s := r.Parts.Cluster.Pool.Status()
			if len(s.Peers) != len(ms)-1 {
				return false
			}

			for _, p := range s.Peers {
				if !p.Alive || !p.Connected {
					return false
				}
			}
		}

		return true
	})
}
