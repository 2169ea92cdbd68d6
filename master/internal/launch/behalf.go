package launch

import (
	"context"

	"saltern/master/value"
)

// Behalf is a user for whom the master starts a job that a saved job permits him.
type Behalf struct {
	User  string
	Eauth string // system of external_auth that authenticated the user; "" for a key
	// Account is the account whose quota the job uses. It is "" for callers with all rights.
	Account string
	// Saved is the value of [jobs.SavedField] of the job. It may be nil: no saved job starts it.
	Saved *value.Map
}

// NewFor returns a job on behalf of a user. It checks no permission: its caller must have done so. As with
// [Launcher.Permit], the job of a user without all rights is sent to the minions that this master finds. With
// order_masters it is sent with its target, which lower masters resolve: the user must be permitted to use it.
func (l *Launcher) NewFor(ctx context.Context, load *value.Map, by Behalf) (*Job, error) {
	load.Set("user", by.User)
	j, err := l.New(ctx, load)
	if err != nil {
		return nil, err
	}

	j.Eauth = by.Eauth
	j.saved = by.Saved
	if by.Account == "" {
		return j, nil
	}
	j.account = by.Account
	if l.cfg.OrderMasters {
		return j, nil
	}
	j.Minions = j.Minions[:len(j.Minions)-j.implied]
	j.implied = 0
	return j, j.Restrict()
}
