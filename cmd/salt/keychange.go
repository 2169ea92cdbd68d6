package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/durable"
	"saltern/internal/printable"
	"saltern/master/crypt"
	"saltern/master/keys"
	"saltern/master/value"
)

// change accepts, rejects or deletes the matching keys in the given states, after asking the user.
// If states is empty, it considers keys in all states.
func (k *keyCall) change(ctx context.Context, verb, pattern string, states []keys.State) error {
	sel := k.matchGlobs(pattern)
	if states != nil {
		maps.DeleteFunc(sel, func(st keys.State, _ []string) bool { return !slices.Contains(states, st) })
	}

	k.onlyFingerprint(sel)
	if len(sel) == 0 {
		if verb == "accept" && k.isEmpty(pattern) {
			fmt.Fprintf(k.stderr, "Unable to accept invalid key for %s.\n", printable.Line(pattern))
			return nil
		}

		k.noMatch(pattern, states)
		if k.values.Str("only_state")+k.values.Str("only_fingerprint") != "" {
			return exit(exitGeneric) // the keys have changed since the caller read them
		}

		return nil
	}

	if yes, err := k.approve(verb, sel); err != nil || !yes {
		return err
	}

	book := k.openBook(ctx, verb, sel)
	defer book.close()
	var failed bool
	for _, st := range keyDirs {
		for _, id := range sel[st] {
			answered := k.warnWhenSlow()
			finger := k.fingerOf(st, id)
			err := k.changeOne(ctx, verb, st, id)
			book.noteKey(ctx, id, st, finger, err)
			answered()

			if err != nil {
				fmt.Fprintf(k.stderr, "Unable to %s the key of %s: %v\n", verb, printable.Line(id), keys.Advise(err))
				k.noteInFile(slog.LevelError, "Unable to "+verb+" the key", "minion", id, "error", err)
				failed = true
				continue
			}

			// printed even with --quiet, as in Salt
			k.println("Key for minion " + printable.Line(id) + " " + pastTense(verb) + ".")
			k.noteInFile(slog.LevelInfo, "Key "+pastTense(verb), "minion", id, "fingerprint", finger)
		}
	}

	if verb != "accept" {
		k.forget(sel, verb)
		if k.isTrue("rotate_aes_key") {
			if err := k.rotate(); err != nil {
				return err
			}
		}
	}

	if failed {
		return exit(exitGeneric)
	}

	return nil
}

// warnWhenSlow prints after ten seconds what the tool waits for, unless the caller calls answered
// first. Without this text the user would see nothing while a volume hangs, because a hanging
// volume returns no error.
func (k *keyCall) warnWhenSlow() (answered func()) {
	t := time.AfterFunc(10*time.Second, func() {
		fmt.Fprintf(k.stderr,
			"%s does not answer; if it is on a shared volume, `applianced storage status` tells why. Waiting.\n",
			k.dir)
	})
	return func() { t.Stop() }
}

// isEmpty reports whether the key file of a pending minion is empty. salt-key does not list such a
// key, because a master may be about to write it.
func (k *keyCall) isEmpty(id string) bool {
	if keys.ValidID(id) != nil {
		return false
	}
	info, err := os.Lstat(filepath.Join(k.dir, keys.Pending.Dir(), id))
	return err == nil && info.Mode().IsRegular() && info.Size() == 0
}

func (k *keyCall) changeOne(ctx context.Context, verb string, st keys.State, id string) error {
	pem, err := k.keyPEM(st, id)
	if err != nil {
		return err
	}

	ev := value.NewMap("result", true, "act", "delete", "id", id)
	switch verb {
	case "delete":
		err = k.store.Delete(id, st)
	default:
		to := keys.Accepted
		if verb == "reject" {
			to = keys.Rejected
		}

		// A file that is no key cannot be accepted. It can be rejected, so that it is no longer
		// pending.
		if _, err := crypt.DefaultBounds.ParsePublic([]byte(pem)); err != nil && to == keys.Accepted {
			fmt.Fprintf(k.stderr, "Unable to accept invalid key for %s.\n", printable.Line(id))
			return err
		}

		ev.Set("act", to.String())
		ev.Set("pub", pem)
		if st == keys.Denied {
			if err = k.store.Put(id, to, pem); err == nil {
				err = k.store.Delete(id, keys.Denied)
			}
		} else {
			err = k.store.Move(id, to)
		}
	}

	if err != nil {
		return err
	}

	if k.c.MasterIsUp() {
		if err := k.c.Fire(ctx, "salt/key", ev); err != nil {
			k.log.Warn("the master was not told of the key; it will see the file", "minion", id, "error", err)
		}
	}

	return nil
}

// isTrue returns the value of an option that is a boolean in the configuration but a text on the
// command line.
func (k *keyCall) isTrue(name string) bool {
	switch v := k.values.Get(name).(type) {
	case bool:
		return v
	case string:
		return !strings.EqualFold(v, "false") && v != ""
	}
	return false
}

// cacheBanks lists the cache's banks with the master's data about minions.
var cacheBanks = []string{"grains", "pillar", "mine"}

// forget deletes the cached data of minions that no longer have a key, so that another machine with
// the same id cannot get the data (salt/key.py check_minion_cache). It also deletes mine data.
func (k *keyCall) forget(sel selection, verb string) {
	if k.cfg.PreserveMinionCache {
		return
	}

	keep := map[string]bool{}
	for _, st := range keyDirs {
		for _, id := range k.store.List(st) {
			keep[id] = true
		}
	}

	if verb == "delete" && k.isTrue("preserve_minions") {
		for _, id := range sel[keys.Accepted] {
			keep[id] = true
		}
	}

	gone := map[string]bool{}
	for _, ids := range sel {
		for _, id := range ids {
			gone[id] = true
		}
	}

	for _, bank := range cacheBanks {
		dir := filepath.Join(k.cfg.CacheDir, bank)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}

		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), ".p")
			id, _, _ := strings.Cut(name, ":") // pillars are also stored under id:pillarenv
			if !ok || keep[name] || keep[id] || bank == "mine" && !gone[id] {
				continue
			}

			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				k.log.Warn("cached data not removed", "minion", id, "error", err)
			}
		}
	}
}

// rotate creates a file with which it requests new session keys from the master (salt/crypt.py
// dropfile). If the file exists, the master has not handled the last request yet, and rotate does
// nothing.
func (k *keyCall) rotate() error {
	path := filepath.Join(k.cfg.CacheDir, ".dfn")
	if _, err := os.Lstat(path); err == nil {
		return nil
	}

	if err := os.MkdirAll(k.cfg.CacheDir, 0o755); err != nil {
		return fmt.Errorf("ask for key rotation: %w", err)
	}

	if err := durable.Replace(path, []byte(k.cfg.ID), 0o400); err != nil {
		return fmt.Errorf("ask for key rotation: %w", err)
	}

	if uid, _, ok := userIDs(k.cfg.User); ok && os.Geteuid() == 0 {
		_ = os.Chown(path, uid, -1)
	}

	return nil
}
