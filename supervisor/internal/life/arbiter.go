package life

import (
	"context"
	"os"
	"path/filepath"

	"saltern/internal/control"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// asArbiter gives the settings of a node that the table of nodes has as arbiter:
// it runs no load balancer, and no other service for minions.
func asArbiter(cfg Config) (Config, error) {
	if !cfg.Settings.Peering.Enabled || !cfg.Settings.OnVolume() {
		return cfg, nil
	}

	k, err := nodes.OpenKeeper(cfg.Settings.DataDir, "")
	if err != nil {
		return cfg, err
	}

	t := k.Table()
	if n, ok := t.Find(cfg.Settings.Node); ok && n.IsArbiter() {
		s := *cfg.Settings
		s.Arbiter, s.LB.Enabled = true, false
		cfg.Settings = &s
	}

	return cfg, nil
}

// noTools has Salt's tools say that there is no master here.
func noTools(s *settings.Settings) error {
	if err := os.MkdirAll(s.MasterConf(), 0o755); err != nil {
		return err
	}
	text := "this node is the arbiter of cluster " + s.Cluster +
		" and runs no salt-master; use Salt's tools on another node: applianced nodes lists them\n"
	_, err := layout.WriteFile(filepath.Join(s.MasterConf(), control.NoMasterFile), []byte(text), 0o644)
	return err
}

// noMinions refuses what an arbiter cannot do. It implements api.Minions and api.LogIns.
type noMinions struct{ member *member.Member }

// Minions implements api.Minions.
func (n noMinions) Minions(context.Context, bool) (status.MinionList, error) {
	return status.MinionList{}, member.NoMaster("list minions and keys", n.member.Table())
}

// ChangeKeys implements api.Minions.
func (n noMinions) ChangeKeys(context.Context, api.KeyChange) error {
	return member.NoMaster("change keys", n.member.Table())
}

// Tokens implements api.LogIns.
func (n noMinions) Tokens(context.Context) (control.Tokens, error) {
	return control.Tokens{}, member.NoMaster("list log-ins", n.member.Table())
}

// RevokeTokens implements api.LogIns.
func (n noMinions) RevokeTokens(context.Context, control.Revocation) (control.Revoked, error) {
	return control.Revoked{}, member.NoMaster("end log-ins", n.member.Table())
}
