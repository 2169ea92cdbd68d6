package setup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/internal/pause"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// step is one action of the set-up. Each step must be repeatable, because power may fail after the
// step and before the machine has saved that the step is done.
type step struct {
	id    string
	name  string // what the step does, in words
	phase status.Setup
	part  bool // after this step the answers cannot be changed; see saved.Part
	do    func(*Machine, context.Context, Answers) error
}

// IDs of the steps. They are saved on disk: do not change them.
const (
	stepNetwork   = "network"
	stepPreflight = "preflight"
	stepAdmin     = "admin"
	stepDisk      = "disk"
	stepKey       = "key"
	stepTable     = "table"
	stepAdmit     = "admit"
	stepConfig    = "config"
	stepStorage   = "storage"
	stepServe     = "serve"
	stepMember    = "member"
)

// planSteps returns the steps for these answers, in their order.
func planSteps(a Answers) (out []step) {
	add := func(id, name string, phase status.Setup, part bool, run func(*Machine, context.Context, Answers) error) {
		out = append(out, step{id, name, phase, part, run})
	}
	disk := func(phase status.Setup) {
		if a.DataDisk != "" {
			add(stepDisk, "prepare the data disk", phase, false, (*Machine).doDisk)
		}
	}

	if a.Network.Method != "" {
		add(stepNetwork, "set the network", status.SetupPreflight, false, (*Machine).doNetwork)
	}

	admin := len(a.Admin.SSHKeys) > 0 || a.Admin.Password != ""
	if a.Mode == Join {
		add(stepPreflight, "check this machine and the cluster", status.SetupPreflight, false, (*Machine).doPreflight)
		if admin {
			add(stepAdmin, "set up the administrator's account", status.SetupJoining, false, (*Machine).doAdmin)
		}

		disk(status.SetupJoining)
		add(stepAdmit, "be admitted by the cluster", status.SetupJoining, true, (*Machine).doAdmit)
		add(stepConfig, "write the configuration", status.SetupJoining, true, (*Machine).doConfig)
		add(stepStorage, "get the shared storage", status.SetupJoining, true, (*Machine).doStorage)
		serve := "start salt-master and the load balancer"
		if a.arbiter() {
			serve = "use the shared volume"
		}

		add(stepServe, serve, status.SetupWaiting, true, (*Machine).doServe)
		add(stepMember, "take part in the cluster", status.SetupWaiting, true, (*Machine).doMember)
		return out
	}

	add(stepPreflight, "check this machine", status.SetupPreflight, false, (*Machine).doPreflight)
	if admin {
		add(stepAdmin, "set up the administrator's account", status.SetupForming, false, (*Machine).doAdmin)
	}

	disk(status.SetupForming)
	add(stepKey, "make the cluster's key and secret", status.SetupForming, false, (*Machine).doKey)
	add(stepTable, "write the table of nodes", status.SetupForming, true, (*Machine).doTable)
	add(stepConfig, "write the configuration", status.SetupForming, true, (*Machine).doConfig)
	add(stepStorage, "prepare the shared storage", status.SetupForming, true, (*Machine).doStorage)
	add(stepServe, "start salt-master and the load balancer", status.SetupWaiting, true, (*Machine).doServe)

	return out
}

// Names of files. All except NextKey are in settings.NodeDir.
const (
	// SecretFile holds the cluster's secret, NextSecretFile the secret that will replace it.
	SecretFile     = "secret"
	NextSecretFile = "secret.next"
	// StagedKey holds the cluster's key until the shared storage has it.
	StagedKey = "cluster.pem"
	// NextKey, with .pem and .pub, is the key on the shared storage that will replace the
	// cluster's key.
	NextKey = "cluster-next"
	// joinedStorage holds the cluster's storage, as the cluster described it at admission.
	joinedStorage = "storage.yaml"
)

// identity returns this node's key. If the node has no key, identity creates one and saves it.
func (m *Machine) identity() (*nodeapi.Identity, error) {
	if err := m.mkNodeDir(); err != nil {
		return nil, fmt.Errorf("node's own key: %w", err)
	}
	id, err := m.draftIdentity()
	if err != nil {
		return nil, err
	}
	return id, id.Save(m.cfg.NodeDir)
}

// draftIdentity returns the key on the disk or, if there is none, a key in memory that this node
// may save later. The checks use such a key, because a machine may be cloned before its set-up:
// until then it must have no key on disk.
func (m *Machine) draftIdentity() (*nodeapi.Identity, error) {
	id, err := nodeapi.ReadIdentity(m.cfg.NodeDir)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draft == nil {
		m.draft, err = nodeapi.NewIdentity()
		return m.draft, err
	}
	return m.draft, nil
}

func (m *Machine) doNetwork(ctx context.Context, a Answers) error {
	if m.cfg.Host == nil {
		return nil
	}
	if err := m.cfg.Host.SetNetwork(ctx, a.Network); err != nil {
		return withHint(err, "look at the interface: networkctl status "+a.Network.Interface,
			"fix network in the answers, and start over: applianced setup back")
	}
	return nil
}

func (m *Machine) doPreflight(ctx context.Context, a Answers) error {
	m.setDoing("checks are made")
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()

	checks, err := m.preflight(ctx, a)
	if err != nil {
		return err
	}

	failed, pass := failedChecks(checks)
	if len(failed) == 0 {
		return nil
	}

	var causes, next []string
	for _, c := range failed {
		words := c.What
		if c.Detail != "" {
			words += ": " + c.Detail
		}
		causes, next = append(causes, words), append(next, c.Hint)
	}

	err = withHint(errors.New(strings.Join(causes, "; ")), next...)
	if pass {
		return &passingError{error: err}
	}

	return err
}

func (m *Machine) doAdmin(ctx context.Context, a Answers) error {
	if m.cfg.Host == nil {
		return nil
	}
	return m.cfg.Host.SetAdmin(ctx, a.Admin)
}

func (m *Machine) doDisk(ctx context.Context, a Answers) error {
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return err
	}
	m.setDoing("a file system is made on %s", a.DataDisk)
	if err := m.cfg.World.Disk(ctx, s, a.DataDisk, a.EraseDisk); err != nil {
		return withHint(err, "look at the disk: lsblk -f; choose another, "+
			"or allow this one to be erased (erase_data_disk)")
	}
	return nil
}

func (m *Machine) doKey(_ context.Context, a Answers) error {
	if err := m.mkNodeDir(); err != nil {
		return err
	}

	path := filepath.Join(m.cfg.NodeDir, StagedKey)
	if b, err := os.ReadFile(path); err != nil || !usable(b) {
		text, err := nodeapi.NewClusterKey()
		if err != nil {
			return fmt.Errorf("make the cluster's key: %w", err)
		}
		if _, err := layout.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}

	secret := a.Secret
	if secret == "" {
		if b, err := os.ReadFile(filepath.Join(m.cfg.NodeDir, SecretFile)); err == nil && secretFault(string(b)) == "" {
			return nil
		}
		secret = rand.Text() + rand.Text()[:6] // 160 random bits
	}

	_, err := layout.WriteFile(filepath.Join(m.cfg.NodeDir, SecretFile), []byte(secret), 0o600)
	return err
}

func usable(b []byte) bool {
	_, err := nodeapi.ParseClusterKey(b)
	return err == nil
}

func (m *Machine) doTable(_ context.Context, a Answers) error {
	id, err := m.identity()
	if err != nil {
		return err
	}

	k, err := nodes.OpenKeeper(m.cfg.DataDir, "")
	if err != nil {
		return err
	}
	if k.Table().Version > 0 {
		return nil // power failed after an earlier try had written the table
	}

	b, err := os.ReadFile(filepath.Join(m.cfg.NodeDir, StagedKey))
	if err != nil {
		return err
	}

	key, err := nodeapi.ParseClusterKey(b)
	if err != nil {
		return err
	}

	self, err := m.ownNode(a)
	if err != nil {
		return err
	}

	self.State = nodes.Member
	self.Certificate = id.Hash
	self.Joined = m.cfg.Now().UTC()
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return err
	}

	_, err = k.Offer(nodes.Table{
		Version:    1,
		Cluster:    a.Cluster,
		KeyHash:    key.Hash,
		Virtual:    a.Virtual,
		StorageTLS: s.OnVolume() && s.Storage.TLS,
		Nodes:      []nodes.Node{self},
	})

	return err
}

// ownNode returns this node's entry in the table of nodes.
func (m *Machine) ownNode(a Answers) (nodes.Node, error) {
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return nodes.Node{}, err
	}

	n := nodes.Node{Name: a.Node, Address: a.Address, Storage: "client"}
	if s.OnVolume() {
		if n.Brick, err = m.cfg.World.Brick(s); err != nil {
			return nodes.Node{}, withHint(fmt.Errorf("make room for a copy of the shared volume: %w", err), bricksHint)
		}
		n.Storage = cmp.Or(a.Storage.Role, RoleData)
	}

	if n.IsArbiter() {
		return n, nil
	}

	for _, f := range a.Front {
		if f != "0.0.0.0" && f != "::" {
			n.Front = append(n.Front, f)
		}
	}

	if len(n.Front) == 0 {
		n.Front = []string{a.Address}
	}

	return n, nil
}

func (m *Machine) doAdmit(ctx context.Context, a Answers) error {
	id, err := m.identity()
	if err != nil {
		return err
	}

	var info JoinInfo
	if a.JoinString != "" {
		info, _ = ParseJoin(a.JoinString)
	}

	port, err := m.nodePort(a)
	if err != nil {
		return err
	}

	var last error
	for _, peer := range a.Peers {
		m.setDoing("asks %s", peer)
		one, cancel := context.WithTimeout(ctx, 45*time.Second)
		ask := nodeapi.Ask{
			Address: net.JoinHostPort(peer, strconv.Itoa(port)),
			Cluster: a.Cluster,
			Secret:  a.Secret,
			KeyHash: info.KeyHash,
			Version: m.cfg.Version,
		}

		met, err := nodeapi.Meet(one, id, ask) // learn the cluster's storage, which ask.Node needs
		if err == nil {
			a.Storage.Kind = met.Storage.Kind
			err = arbiterFault(a, met.Storage)
			if err == nil {
				ask.Node, err = m.ownNode(a)
			}

			if err != nil {
				cancel()
				return err
			}

			ask.Join, ask.Pin = true, met.Node
			met, err = nodeapi.Meet(one, id, ask)
		}

		cancel()
		if err == nil {
			return m.admitted(a, met)
		}

		c := meetCheck(peer, port, err)
		last = withHint(fmt.Errorf("%s: %s", c.What, c.Detail), c.Hint)
		if !c.passing {
			return last
		}

		last = &passingError{error: last}
	}

	return last
}

func (m *Machine) nodePort(a Answers) (int, error) {
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return 0, err
	}
	return s.Peering.NodePort, nil
}

// admitted saves the answer of the cluster that admitted this machine. It writes the table last,
// because the table makes this node a member.
func (m *Machine) admitted(a Answers, met *nodeapi.Met) error {
	text, err := yaml.Marshal(Storage{Kind: met.Storage.Kind, Path: met.Storage.Path})
	if err != nil {
		return err
	}

	if _, err := layout.WriteFile(filepath.Join(m.cfg.NodeDir, joinedStorage), text, 0o600); err != nil {
		return err
	}

	if _, err := layout.WriteFile(filepath.Join(m.cfg.NodeDir, SecretFile), []byte(a.Secret), 0o600); err != nil {
		return err
	}

	k, err := nodes.OpenKeeper(m.cfg.DataDir, "")
	if err != nil {
		return err
	}

	_, err = k.Offer(met.Table)
	return err
}

// completed returns the answers, completed with what the cluster said at admission if the machine
// joins.
func (m *Machine) completed(a Answers) (Answers, error) {
	if a.Mode != Join {
		return a, nil
	}

	k, err := nodes.OpenKeeper(m.cfg.DataDir, "")
	if err != nil {
		return a, err
	}

	a.Cluster = k.Table().Cluster
	b, err := readBounded(filepath.Join(m.cfg.NodeDir, joinedStorage))
	if err != nil {
		return a, fmt.Errorf("what the cluster said about its storage: %w", err)
	}

	var st Storage
	if err := yaml.Unmarshal(b, &st); err != nil {
		return a, fmt.Errorf("what the cluster said about its storage: %w", err)
	}

	a.Storage.Kind = st.Kind
	if a.Storage.Path == "" && st.Kind == settings.DirectoryStorage {
		a.Storage.Path = st.Path
	}

	return a, nil
}

func (m *Machine) doConfig(ctx context.Context, a Answers) error {
	if err := m.nameMachine(ctx, a); err != nil {
		return err
	}
	a, err := m.completed(a)
	if err != nil {
		return err
	}
	text, err := Render(a, m.cfg.Base)
	if err != nil {
		return err
	}
	return m.cfg.World.Configure(text, a.Mode == Form)
}

// pollUntil polls the node until done returns true. It has no time limit. The set-up shows the text
// that done returns, which says what is missing. The status shows the problems.
func (m *Machine) pollUntil(ctx context.Context, done func(NodeLook) (bool, string)) error {
	for {
		ok, waits := done(m.cfg.World.Look())
		if ok {
			return nil
		}
		m.setDoing("waits for %s", waits)
		if err := pause.For(ctx, look); err != nil {
			return err
		}
	}
}

func (m *Machine) doStorage(ctx context.Context, _ Answers) error {
	return m.pollUntil(ctx, func(l NodeLook) (bool, string) {
		if !l.Running {
			return false, "the node to start with its configuration"
		}
		return l.Storage, l.StorageWaiting
	})
}

func (m *Machine) doServe(ctx context.Context, _ Answers) error {
	return m.pollUntil(ctx, func(l NodeLook) (bool, string) {
		if !l.Running {
			return false, "the node to start with its configuration"
		}
		return l.Serving, l.ServingWaiting
	})
}

func (m *Machine) doMember(ctx context.Context, a Answers) error {
	err := m.pollUntil(ctx, func(l NodeLook) (bool, string) {
		n, ok := l.Table.Find(a.Node)
		return ok && n.State != nodes.Joining, "the other nodes to take note"
	})
	if err != nil {
		return err
	}
	return m.triesPorts(ctx, a)
}

// triesPorts checks whether the ports of the other nodes are open now that this node is admitted.
// It reports closed ports but does not stop the set-up: the node serves, and its status names the
// ports that it cannot reach.
func (m *Machine) triesPorts(ctx context.Context, a Answers) error {
	s, err := (&Preflight{Base: m.cfg.Base}).settings(a)
	if err != nil {
		return err
	}

	k, err := nodes.OpenKeeper(m.cfg.DataDir, "")
	if err != nil {
		return err
	}

	s.Arbiter = a.arbiter()

	for began := m.cfg.Now(); ; {
		shut := shutPorts(ctx, k.Table(), a.Node, masterPorts(s))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case len(shut) == 0:
			return nil
		// Within 30 s the supervisors of the other nodes learn the new table and open their firewalls.
		case m.cfg.Now().Sub(began) > 30*time.Second:
			m.cfg.Log.Warn("ports of other nodes are closed to this one: let them through, both ways; "+
				"applianced ping NODE tries them",
				"ports", strings.Join(shut, ", "))
			return nil
		}

		m.setDoing("waits for ports to be open: %s", strings.Join(shut, ", "))
		if err := pause.For(ctx, look); err != nil {
			return err
		}
	}
}

// shutPorts returns those ports of the other nodes that this node cannot reach. It tries the ports
// of their masters and of the shared volume.
func shutPorts(ctx context.Context, t nodes.Table, self string, masters []int) (shut []string) {
	for _, n := range t.Present() {
		if n.Name == self || n.State == nodes.Joining {
			continue
		}

		var ports []int
		if !n.IsArbiter() {
			ports = append(ports, masters...)
		}

		if n.Brick != "" {
			ports = append(ports, glusterPort)
		}

		shut = append(shut, closedPorts(n.Address, nodeapi.TryPorts(ctx, n.Address, ports))...)
	}

	return shut
}
