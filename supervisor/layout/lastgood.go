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

// Options are the master's options that an administrator has set: files in a folder, and the
// options in appliance.yaml.
type Options struct {
	Dir   string // folder of the *.conf files
	Own   map[string]any
	Files []options.File
	Mark  string // identifies the options together with Key
	// Key identifies the cluster's key that belongs to the options: nodes that load options one
	// after another load a new key with the options. It is empty if there is no such key, or if it
	// is not known.
	Key string
}

// UserOptions returns the present options. yamlOptions are the options in appliance.yaml.
func UserOptions(s *settings.Settings, yamlOptions map[string]any) (Options, error) {
	return readOptions(s, s.UserConfDir(), yamlOptions)
}

// GoodConfDir returns the folder of the administrator's option files with which the master last
// served. With these files the master can start although a newer option file has a fault.
func GoodConfDir(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.good")
}

// heldConfDir returns the folder with the options from before a change, which a node keeps while
// the change goes from node to node.
func heldConfDir(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.held")
}

// ownFile returns the path of the file with those options of appliance.yaml that belong to a
// folder.
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

// clusterKey returns the digest of the cluster's key file on the storage.
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

// eachFile calls visit with each option file of a folder, in order, until visit returns an error.
// It skips links to missing files.
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

// GoodOptions returns the options with which the master last served. If there are none, the error
// is [fs.ErrNotExist].
func GoodOptions(s *settings.Settings) (Options, error) { return lastGood(GoodConfDir(s), s) }

// HeldOptions returns the options that [Hold] has stored while newer options are on trial. If there
// are none, the error is [fs.ErrNotExist].
func HeldOptions(s *settings.Settings) (Options, error) { return lastGood(heldConfDir(s), s) }

func lastGood(dir string, s *settings.Settings) (Options, error) {
	if _, err := os.Stat(dir); err != nil {
		return Options{}, fmt.Errorf("read the options that are kept: %w", err)
	}

	own := s.Master.Options
	b, _, err := durable.ReadFile(ownFile(dir), maxUserFile, durable.Refuse)
	switch {
	case errors.Is(err, fs.ErrNotExist): // an older version of the appliance wrote the folder without this file
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

// KeepGood copies options to GoodConfDir. reader is the master's account, which may read the copy.
func KeepGood(s *settings.Settings, o Options, reader Account) error {
	return keepLastGood(o, GoodConfDir(s), reader)
}

// Hold stores options to go back to, see [HeldOptions]. reader is the master's account, which may
// read the stored files.
func Hold(s *settings.Settings, o Options, reader Account) error {
	return keepLastGood(o, heldConfDir(s), reader)
}

// Release removes the options that [Hold] has stored.
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

// Refusal identifies options with which the supervisor does not start the master.
type Refusal struct {
	Mark string `json:"mark"`
	Why  string `json:"why"`
}

const maxRefusal = 8 << 10

func refusalFile(s *settings.Settings) string {
	return filepath.Join(s.DataDir, "etc", "master.d.refused")
}

// Refused returns the refused options, or a zero Refusal.
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

// Refuse stores a refusal. A zero Refusal removes the stored one.
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
