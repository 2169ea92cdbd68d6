package saltapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/glusterctl/cert"
	"saltern/internal/durable"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
)

// The nodes of a cluster have certificates for Salt's API from one authority, which the first node
// creates on the shared storage. So a program that trusts the authority trusts every node, and
// whichever node has the virtual address. Only root can read the authority's key. If the
// administrator sets a certificate (ssl_crt), it replaces ours.
const (
	maxAPIPEM   = 64 << 10
	maxAPIHosts = 256
)

// renewCertificate issues a certificate for this node, unless the node has one for its present
// names that does not expire soon. It needs the shared storage only to issue a certificate.
func (a *API) renewCertificate(ctx context.Context) error {
	must, all := a.hosts()
	if a.hasCertificate(must) {
		return nil
	}

	ca, err := a.authorityInTime(ctx)
	if err != nil {
		return err
	}

	own, err := ca.IssueServer(a.env.Settings.Node, all, rand.Reader, a.env.Now())
	if err != nil {
		return err
	}

	if _, err := layout.WriteFile(a.env.Settings.APIAuthority(), ca.Cert, 0o644); err != nil {
		return err
	}

	if _, err := layout.WriteSecret(a.env.Settings.APICert(), own.Join(), a.cfg.Programs.Master); err != nil {
		return err
	}

	a.env.Log.Info("this node has a new certificate for Salt's API", "path", a.env.Settings.APICert(), "authority",
		a.env.Settings.APIAuthority())
	return nil
}

// rejoin deletes the certificate if another authority than the cluster's has issued it: the shared
// storage, which holds the authority, may be new. If the storage does not answer, the certificate
// stays.
func (a *API) rejoin(ctx context.Context) error {
	own, err := durable.Read(a.env.Settings.APIAuthority(), maxAPIPEM)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if ca, cerr := a.authorityInTime(ctx); cerr != nil || bytes.Equal(ca.Cert, own) {
		return nil
	}
	if err := os.Remove(a.env.Settings.APIAuthority()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take the certificate of another authority: %w", err)
	}
	return nil
}

// authorityInTime returns the cluster's authority, or an error if the storage does not answer in
// time.
func (a *API) authorityInTime(ctx context.Context) (cert.Pair, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return oneatatime.Do(ctx, a.storage, "read the authority "+a.env.Settings.SharedAPIAuthority(), a.authority)
}

func (a *API) hasCertificate(must []string) bool {
	ca, err := durable.Read(a.env.Settings.APIAuthority(), maxAPIPEM)
	if err != nil {
		return false
	}
	text, err := durable.Read(a.env.Settings.APICert(), maxAPIPEM)
	if err != nil {
		return false
	}
	own, ok := cert.Split(text)
	return ok && cert.Serves(ca, own.Cert, must, a.env.Now().Add(120*24*time.Hour)) == nil
}

// authority returns the cluster's authority, and creates it if there is none. If several nodes
// create one at the same moment, all use the first.
func (a *API) authority() (cert.Pair, error) {
	path := a.env.Settings.SharedAPIAuthority()
	for range 2 {
		text, err := durable.Read(path, maxAPIPEM)
		if err == nil {
			if ca, ok := cert.Split(text); ok {
				return ca, nil
			}
			return cert.Pair{}, fmt.Errorf(
				"%s does not hold a certificate and its key: remove it to have a new one made, which programs have to be told of",
				path)
		}

		if !errors.Is(err, fs.ErrNotExist) {
			return cert.Pair{}, fmt.Errorf("read the authority of Salt's API: %w", err)
		}

		if err := a.makeAuthority(path); err != nil {
			return cert.Pair{}, fmt.Errorf("make the authority of Salt's API: %w", err)
		}
	}

	return cert.Pair{}, fmt.Errorf("the authority %s was made and is not there", path)
}

func (a *API) makeAuthority(path string) error {
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	ca, err := cert.New(("Salt API of " + a.env.Settings.Cluster)[:min(64, 12+len(a.env.Settings.Cluster))],
		rand.Reader, a.env.Now())
	if err != nil {
		return err
	}

	own := path + "." + a.env.Settings.Node
	if err := durable.Replace(own, ca.Join(), 0o600); err != nil {
		return err
	}
	defer os.Remove(own)

	if err := os.Link(own, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	return durable.SyncDir(filepath.Dir(path))
}

// hosts returns the names and addresses at which programs reach this node. The present certificate
// is replaced if it does not name every host in the list must. A new certificate names every host in
// the list all.
func (a *API) hosts() (must, all []string) {
	s := a.env.Settings
	add := func(list []string, names ...string) []string {
		for _, n := range names {
			if ip, err := netip.ParseAddr(n); err == nil {
				if ip.IsUnspecified() {
					continue
				}
				n = ip.String()
			}

			if n != "" && !slices.Contains(list, n) && len(list) < maxAPIHosts {
				list = append(list, n)
			}
		}

		return list
	}

	must = add([]string{s.Node, "localhost", "127.0.0.1", "::1"}, s.API.Names...)
	must = add(must, s.Peering.Address)
	must = add(must, s.Front.Addresses...)
	if a.cfg.Table != nil {
		// The load balancers of all nodes forward requests for the virtual address to this node.
		t := a.cfg.Table()
		must = add(must, t.Virtual)
		for _, n := range t.Nodes {
			if n.State != nodes.Removed {
				must = add(must, append([]string{n.Name, n.Address}, n.Front...)...)
			}
		}
	}

	var own []string
	list, _ := net.InterfaceAddrs() // without them the certificate has names only
	for _, i := range list {
		if p, err := netip.ParsePrefix(i.String()); err == nil && p.Addr().IsGlobalUnicast() {
			own = append(own, p.Addr().String())
		}
	}

	all = add(slices.Clone(must), own...)
	if a.cfg.Table == nil { // without a cluster, only the interfaces show the node's addresses
		must = all
	}

	return must, all
}
