package salttools

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// keyVerbs maps the verbs of a change of keys to salt-key's options.
var keyVerbs = map[string][]string{
	"accept": {"-a", "--include-all"},
	"reject": {"-r", "--include-all"},
	"delete": {"-d"},
}

// keyStates maps states of keys to salt-key's words.
var keyStates = map[string]string{"accepted": "acc", "pending": "pre", "rejected": "rej", "denied": "den"}

var (
	// plainID matches a name that salt-key takes literally, not as a pattern.
	plainID = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,254}$`)
	finger  = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){15,63}$`)
)

// atOnce is how many names one call of salt-key gets. Together the names make an argument of at
// most 64 KiB.
const atOnce = 250

// ChangeKeys accepts, rejects or deletes keys. It runs salt-key, so that events and reactors are
// the same as after a manual call.
func (c Cluster) ChangeKeys(ctx context.Context, q api.KeyChange) error {
	options, err := keyOptions(q)
	if err != nil {
		return err
	}

	for _, id := range q.IDs {
		if !plainID.MatchString(id) {
			return fmt.Errorf("%w: %.70q is not the name of one key; for patterns: %s", api.ErrState, id,
				saltKey(c.Own.Config))
		}
	}

	if err := c.Own.haveKeys(ctx, q.IDs); err != nil {
		return err
	}

	var failed []error
	for ids := range slices.Chunk(q.IDs, atOnce) {
		args := slices.Concat([]string{"-y", "--out", "json", options[0], strings.Join(ids, ",")}, options[1:])
		if _, err := c.Own.runTool(ctx, "salt-key", args...); err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", q.Verb, status.Clip(strings.Join(ids, ", ")), err))
		}
	}

	return errors.Join(failed...)
}

// keyOptions returns salt-key's options for a change. The option with the names comes first.
func keyOptions(q api.KeyChange) ([]string, error) {
	options, ok := keyVerbs[q.Verb]
	if !ok || len(q.IDs) == 0 || len(q.IDs) > api.MaxKeys {
		return nil, fmt.Errorf("%w: %d keys cannot be changed by %.20q: accept, reject or delete 1 to %d keys",
			api.ErrState, len(q.IDs), q.Verb, api.MaxKeys)
	}

	options = slices.Clone(options)
	if q.State != "" {
		state := keyStates[q.State]
		if state == "" || q.Verb != "delete" {
			return nil, fmt.Errorf("%w: keys are deleted by state only, which is accepted, pending, "+
				"rejected or denied, not %.20q",
				api.ErrState, q.State)
		}
		options = append(options, "--only-state", state)
	}

	if q.Finger != "" {
		if !finger.MatchString(q.Finger) {
			return nil, fmt.Errorf("%w: %.70q is no fingerprint; applianced keys shows them", api.ErrState, q.Finger)
		}
		options = append(options, "--only-fingerprint", q.Finger)
	}

	return options, nil
}

// haveKeys returns an error if a name has no key. Call it before changing any key.
func (t Tools) haveKeys(ctx context.Context, ids []string) error {
	list, err := t.Minions(ctx, false)
	if err != nil {
		return err
	}

	have := map[string]bool{}
	for _, m := range list.Minions {
		have[m.ID] = true
	}

	var missing []string
	for _, id := range ids {
		if !have[id] {
			missing = append(missing, id)
		}
	}

	if len(missing) > 0 {
		return fmt.Errorf("%w: nothing was changed: there is no key of %s; next: applianced keys",
			api.ErrState, status.Clip(strings.Join(missing, ", ")))
	}

	return nil
}

// saltKey returns the command line of salt-key on this node. It names the configuration in dir
// unless dir is /etc/salt, which Salt's tools read by default.
func saltKey(dir string) string {
	if to, err := filepath.EvalSymlinks("/etc/salt"); err == nil && to == dir {
		return "salt-key"
	}
	return "salt-key -c " + dir
}
