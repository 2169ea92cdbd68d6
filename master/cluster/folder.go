package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/versioned"
	"saltern/master/cluster/node"
	"saltern/master/crypt"
	"saltern/master/internal/auth"
)

// Names of the files in the shared folder. Names without "saltern" are those that Salt uses
// (salt/crypt.py MasterKeys, salt/master.py).
const (
	recordFile = control.RecordFile
	keyFile    = ".aes"
	peersDir   = "peers"
	clusterPEM = "cluster.pem"
	clusterPub = "cluster.pub"
)

// ScheduleFile is the name of the file that records which jobs of the schedule the masters have
// run; see package schedule.
const ScheduleFile = "schedule.saltern"

// JobsDir is the folder in which masters hand over the records of jobs; see package jobs.
const JobsDir = "jobs"

// folder is the shared folder cluster_pki_dir. Its methods block for as long as the file system
// blocks.
type folder struct {
	dir string
	// salt means that Salt's masters are admitted. They may write a new AES key to the folder.
	salt bool
}

// errAway reports that the folder exists but lacks the cluster's keys. Masters never remove the
// keys. So the volume is probably not mounted: an empty mount point looks the same.
var errAway = errors.New("the shared volume is not mounted")

func (f folder) filePath(name string) string { return filepath.Join(f.dir, name) }
func (f folder) peerFile(id string) string   { return filepath.Join(f.dir, peersDir, id+".pub") }

// record returns the file of the cluster's record. Masters change the file without a lock, because
// a shared volume may never grant one; see package versioned.
func (f folder) record() versioned.File {
	return versioned.File{
		Path:  f.filePath(recordFile),
		Mode:  0o600,
		Limit: maxRecord,
		Version: func(b []byte) (uint64, error) {
			r, err := parseRecord(b)
			return r.Version, err
		},
	}
}

// readFile reads a small regular file. It retries when a network file system reports a stale
// handle.
func (f folder) readFile(name string, limit int64) (b []byte, err error) {
	err = durable.RetryStale(50*time.Millisecond, func() (err error) {
		b, err = durable.Read(f.filePath(name), limit)
		return err
	})
	return b, err
}

// loadRecord reads the cluster's record. exists is false if there is none.
func (f folder) loadRecord() (r node.Record, exists bool, err error) {
	b, _, err := f.record().Read()
	if errors.Is(err, fs.ErrNotExist) {
		// The record is also missing when the volume is not mounted. Then the key file is missing too.
		if _, err := os.Stat(f.filePath(clusterPEM)); err != nil {
			return node.Record{}, false, fmt.Errorf("%w: %w", errAway, err)
		}
		return node.Record{}, false, nil
	}

	if errors.Is(err, syscall.ENOTCONN) { // on FUSE this means that the client process has ended
		return node.Record{}, false, fmt.Errorf("%w: %w", errAway, err)
	}
	if err != nil {
		return node.Record{}, false, fmt.Errorf("read the cluster's record: %w", err)
	}

	r, err = parseRecord(b)
	return r, err == nil, err
}

// storeRecord replaces the record if its version is expect, and updates the files of Salt's layout
// to match. conflict reports that the record has another version; current is then the record in the
// folder. If another master changes those files at the same moment, the next load or store repairs
// them.
func (f folder) storeRecord(expect uint64, r node.Record) (current node.Record, conflict bool, err error) {
	current, exists, err := f.loadRecord()
	if err != nil {
		return node.Record{}, false, err
	}
	if exists && current.Version != expect || !exists && expect != 0 {
		return current, true, nil
	}

	b, err := json.Marshal(r)
	if err != nil {
		return node.Record{}, false, fmt.Errorf("pack the cluster's record: %w", err)
	}

	// Write the key files of the peers first: a master that reads the new record may look for them.
	for _, m := range r.Members {
		if err := f.writePeer(m); err != nil {
			return node.Record{}, false, err
		}
	}

	switch err := f.record().Write(expect, b); {
	case errors.Is(err, versioned.ErrConflict):
		if current, _, err = f.loadRecord(); err != nil {
			return node.Record{}, false, err
		}
		f.removePeers(r, current)
		return current, true, nil
	case err != nil:
		return node.Record{}, false, fmt.Errorf("write the cluster's record: %w", err)
	}

	// The record is written. If the remaining steps fail, mendMissingKey repeats them.
	_ = f.mendKey(r, r.KeyGen != current.KeyGen)
	f.removePeers(current, r)
	return r, false, nil
}

// removePeers removes the key files of masters that are in the replaced record but not in inForce.
func (f folder) removePeers(record, inForce node.Record) {
	for _, m := range record.Members {
		if _, ok := inForce.Member(m.ID); !ok {
			_ = os.Remove(f.peerFile(m.ID))
		}
	}
}

func (f folder) writePeer(m node.Member) error {
	have, err := os.ReadFile(f.peerFile(m.ID))
	if err == nil && crypt.NormalizePEM(string(have)) == crypt.NormalizePEM(m.Pub) {
		return nil
	}
	if err := durable.Replace(f.peerFile(m.ID), []byte(crypt.NormalizePEM(m.Pub)), 0o400); err != nil {
		return fmt.Errorf("write the key of %s: %w", m.ID, err)
	}
	return nil
}

// readKey reads the cluster AES key that Salt's masters use.
func (f folder) readKey() (crypt.Key, error) {
	b, err := f.readFile(keyFile, 4096)
	if err != nil {
		return crypt.Key{}, fmt.Errorf("read the cluster's AES key: %w", err)
	}
	return crypt.ParseKey(string(b))
}

// mendMissingKey writes the AES key of the record to the key file if the file lacks the key,
// because a crash has interrupted its writing.
func (f folder) mendMissingKey(r node.Record) error { return f.mendKey(r, false) }

// mendKey writes the AES key of the record. changed means that the record has a new key. If changed
// is false and Salt's masters are admitted, mendKey does not replace a missing or unknown key: a
// Salt master may be writing one at this moment.
func (f folder) mendKey(r node.Record, changed bool) error {
	k, err := f.readKey()
	if err == nil && k.String() == r.Key {
		return nil
	}
	if f.salt && !changed && (err != nil || k.String() != r.PrevKey) {
		return nil
	}

	if now, exists, err := f.loadRecord(); err != nil || !exists || now.Version != r.Version {
		return err // if err is nil, another master has changed the record meanwhile, and will repair the key file
	}

	if err := durable.Replace(f.filePath(keyFile), []byte(r.Key), 0o600); err != nil {
		return fmt.Errorf("write the cluster's AES key: %w", err)
	}

	return nil
}

// prepared is the result of prepare.
type prepared struct {
	found bool // the folder was unused: this master may create the record, see node.Config.Found
	peers []node.Peer
}

// prepare creates the files that an unused folder lacks, decides whether this master may found the
// cluster, and loads the cluster's key pair. Other masters may run prepare at the same time.
func (f folder) prepare(cfg Config) (p prepared, id auth.Identity, err error) {
	for end := time.Now().Add(keyWritten); ; time.Sleep(keyWritten / 30) {
		if p, err = f.arrange(cfg); err == nil {
			if id, err = auth.LoadIdentity(cfg.Dir, "cluster", cfg.KeyPass); err != nil {
				err = fmt.Errorf("cluster key (cluster_key_pass): %w", err)
			}
		}
		if !errors.Is(err, errNoKey) && !errors.Is(err, crypt.ErrPrivateKey) || time.Now().After(end) {
			return p, id, err
		}
	}
}

// keyWritten is how long prepare waits for a cluster key that is missing or unreadable. A joining
// Salt master removes the files and writes them in place (salt/channel/server.py
// handle_pool_publish).
const keyWritten = 3 * time.Second

var errNoKey = errors.New("the cluster has no key")

// arrange creates the missing folders and keys, and returns the peers whose keys it found.
func (f folder) arrange(cfg Config) (prepared, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return prepared{}, fmt.Errorf("make cluster_pki_dir: %w", err)
	}

	// Salt's folders for the keys of minions and masters, and Saltern's folder for jobs.
	for _, d := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied",
		"minions_autosign", peersDir, JobsDir} {
		if err := versioned.Mkdir(f.filePath(d), 0o700); err != nil {
			return prepared{}, fmt.Errorf("make the folders of keys and jobs: %w", err)
		}
	}

	var p prepared
	for _, s := range cfg.Peers {
		id := peerName(s)
		if id == cfg.ID {
			continue
		}

		pub, err := durable.Read(f.peerFile(id), 4096)
		if err != nil {
			pub = nil
		}

		if _, err := crypt.ParsePublic(pub); err != nil {
			pub = nil
		}

		p.peers = append(p.peers, node.Peer{ID: id, Pub: string(pub)})
	}

	_, err := os.Stat(f.filePath(clusterPEM))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, other := range []string{recordFile, clusterPub} {
			if _, err := os.Stat(f.filePath(other)); err == nil {
				return prepared{}, fmt.Errorf("%w: %s has %s but no %s; restore it from a backup", errNoKey,
					f.dir, other, clusterPEM)
			}
		}

		if made, err := f.formCluster(cfg); made || err != nil {
			return prepared{found: true, peers: p.peers}, err
		}
	case err != nil:
		return prepared{}, fmt.Errorf("look for the cluster's key: %w", err)
	}

	if err := f.complete(cfg); err != nil {
		return prepared{}, err
	}

	mine, err := durable.Read(f.peerFile(cfg.ID), 4096)
	p.found = len(p.peers) == 0 || err == nil && crypt.NormalizePEM(string(mine)) == crypt.NormalizePEM(cfg.Pub)
	return p, nil
}

// formCluster creates a new cluster unless another master does so first, and reports whether it
// did. The first master that stores a cluster key founds the cluster. Before that step, formCluster
// stores this master's own key: if the master dies between the two steps, its next start recognises
// itself as the founder by its own key.
func (f folder) formCluster(cfg Config) (made bool, err error) {
	if err := f.writePeer(node.Member{ID: cfg.ID, Pub: cfg.Pub}); err != nil {
		return false, err
	}

	bits := cfg.KeySize
	bits = cmp.Or(bits, 2048)
	key, err := crypt.GeneratePrivate(bits)
	if err != nil {
		return false, fmt.Errorf("make the cluster's key: %w", err)
	}

	text, err := crypt.PrivatePEM(key, cfg.KeyPass)
	if err != nil {
		return false, fmt.Errorf("make the cluster's key: %w", err)
	}

	if made, err = versioned.Create(f.filePath(clusterPEM), text, 0o400); err != nil {
		return false, fmt.Errorf("write the cluster's key: %w", err)
	}
	if !made {
		return false, os.Remove(f.peerFile(cfg.ID)) // another master has founded the cluster; this master joins it
	}

	return true, f.complete(cfg)
}

// complete creates the public key file and the AES key file of the cluster if they are missing.
func (f folder) complete(cfg Config) error {
	if _, err := os.Lstat(f.filePath(clusterPub)); errors.Is(err, fs.ErrNotExist) {
		key, err := crypt.LoadPrivate(f.filePath(clusterPEM), cfg.KeyPass)
		if err != nil {
			return fmt.Errorf("cluster key (cluster_key_pass): %w", err)
		}

		pub, err := crypt.PublicPEM(&key.PublicKey)
		if err == nil {
			_, err = versioned.Create(f.filePath(clusterPub), []byte(pub), 0o400)
		}

		if err != nil {
			return fmt.Errorf("write the cluster's public key: %w", err)
		}
	}

	if _, err := os.Lstat(f.filePath(keyFile)); errors.Is(err, fs.ErrNotExist) {
		aes, err := crypt.NewKey(nil)
		if err == nil {
			_, err = versioned.Create(f.filePath(keyFile), []byte(aes.String()), 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the cluster's AES key: %w", err)
		}
	}

	return nil
}

// peerName returns the host in an entry of cluster_peers. Salt permits host:port.
func peerName(s string) string {
	if strings.Count(s, ":") == 1 {
		s, _, _ = strings.Cut(s, ":")
	}
	return strings.Trim(s, "[]")
}
