package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"saltern/internal/durable"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
)

// Options are those of the master that an administrator gives: files in a folder,
// and those of appliance.yaml.
type Options struct {
	Dir   string // of *.conf
	Own   map[string]any
	Files []options.File
	Mark  string // stands for all of them, and for Key
	// Key stands for the cluster's key, with which a master comes that takes the options:
	// nodes that take the options one after another take a new key so. Empty: none, or
	// not known.
	Key string
}

// UserOptions are the options of now; own are those of appliance.yaml.
func UserOptions(s *settings.Settings, own map[string]any) (Options, error) {
	return readOptions(s, s.UserConfDir(), own)
}

// GoodConfDir holds the administrator's option files as they were when the master
// last served with them: a broken line must not keep it from starting.
func GoodConfDir(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.good")
}

// heldConfDir holds those of before, while a change of them rolls over the nodes.
func heldConfDir(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.held")
}

// ownFile holds the options of appliance.yaml that belong to a folder.
func ownFile(dir string) string { return dir + ".yaml" }

func readOptions(s *settings.Settings, dir string, own map[string]any) (Options, error) {
	o := Options{Dir: dir, Own: own, Key: clusterKey(s)}
	text, err := yaml.Marshal(own)
	if err != nil {
		return o, fmt.Errorf("read the options of the master: %w", err)
	}

	all := sha256.New()
	_, _ = all.Write(text)
	err = eachFile(dir, func(name string, b []byte) error {
		sum := sha256.Sum256(b)
		one := options.File{Name: name, Digest: hex.EncodeToString(sum[:])}
		o.Files = append(o.Files, one)
		fmt.Fprintf(all, "%q %s\n", one.Name, one.Digest)
		return nil
	})
	if err != nil {
		return o, fmt.Errorf("read the options of the master: %w", err)
	}

	if o.Key != "" {
		fmt.Fprintf(all, "key %s\n", o.Key)
	}

	o.Mark = hex.EncodeToString(all.Sum(nil))
	return o, nil
}

// clusterKey is the digest of the key file of the cluster, which is on its storage.
func clusterKey(s *settings.Settings) string {
	if !s.Peering.Enabled || s.Arbiter {
		return ""
	}
	b, err := durable.Read(filepath.Join(s.SharedPKIDir(), "cluster.pem"), maxUserFile)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// eachFile gives the option files of a folder to visit, in order, until one fails. A link
// to nothing is left out.
func eachFile(dir string, visit func(name string, b []byte) error) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.conf"))
	for _, f := range files[:min(len(files), maxUserFiles)] {
		b, _, err := durable.ReadFile(f, maxUserFile, durable.Follow)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		if err == nil {
			err = visit(filepath.Base(f), b)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

// GoodOptions are the options with which the master served last. The error is
// [fs.ErrNotExist] when there are none.
func GoodOptions(s *settings.Settings) (Options, error) { return lastGood(GoodConfDir(s), s) }

// HeldOptions are those of before. The error is [fs.ErrNotExist] when there are
// none.
func HeldOptions(s *settings.Settings) (Options, error) { return lastGood(heldConfDir(s), s) }

func lastGood(dir string, s *settings.Settings) (Options, error) {
	if _, err := os.Stat(dir); err != nil {
		return Options{}, fmt.Errorf("read the options that are kept: %w", err)
	}

	own := s.Master.Options
	b, _, err := durable.ReadFile(ownFile(dir), maxUserFile, durable.Refuse)
	switch {
	case errors.Is(err, fs.ErrNotExist): // kept by a version that did not know of them
	case err != nil:
		return Options{}, fmt.Errorf("read the options that are kept: %w", err)
	default:
		own = nil
		if err := yaml.Unmarshal(b, &own); err != nil {
			return Options{}, fmt.Errorf("read %s: %w", ownFile(dir), err)
		}
	}

	return readOptions(s, dir, own)
}

// KeepGood copies options to GoodConfDir, for the master to read.
func KeepGood(s *settings.Settings, o Options, reader Account) error {
	return keepLastGood(o, GoodConfDir(s), reader)
}

// Hold copies options to where those of before are.
func Hold(s *settings.Settings, o Options, reader Account) error {
	return keepLastGood(o, heldConfDir(s), reader)
}

// Release removes the options of before.
func Release(s *settings.Settings) error {
	dir := heldConfDir(s)
	err := os.RemoveAll(dir)
	if rerr := os.Remove(ownFile(dir)); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

func keepLastGood(o Options, dir string, reader Account) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the options of the master: %w", err)
	}

	text, err := yaml.Marshal(o.Own)
	if err == nil {
		_, err = WriteSecret(ownFile(dir), text, Account{})
	}

	if err != nil {
		return fmt.Errorf("keep the options of the master: %w", err)
	}

	there := map[string]bool{}
	err = eachFile(o.Dir, func(name string, b []byte) error {
		there[name] = true
		_, err := WriteSecret(filepath.Join(dir, name), b, reader)
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the options of the master: %w", err)
	}

	old, err := os.ReadDir(dir)
	for _, e := range old {
		if !there[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}

	return err
}

// Refusal says that the master is not started with certain options.
type Refusal struct {
	Mark string `json:"mark"`
	Why  string `json:"why"`
}

const maxRefusal = 8 << 10

func refusalFile(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.refused")
}

// Refused gives the options that are refused; the zero value: none.
func Refused(s *settings.Settings) (r Refusal, err error) {
	b, err := durable.Read(refusalFile(s), maxRefusal)
	if errors.Is(err, fs.ErrNotExist) {
		return Refusal{}, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		return Refusal{}, fmt.Errorf("read which options are refused: %w", err)
	}
	return r, nil
}

// Refuse remembers it; the zero value: nothing is refused.
func Refuse(s *settings.Settings, r Refusal) error {
	if r == (Refusal{}) {
		if err := os.Remove(refusalFile(s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget which options are refused: %w", err)
		}
		return nil
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = WriteFile(refusalFile(s), b, 0o600)
	}
	return err
}
