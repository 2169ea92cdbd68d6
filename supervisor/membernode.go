package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"saltern/supervisor/layout"
	"saltern/supervisor/service"
	"saltern/supervisor/setup"
)

// storageReady is what the master waits for before its start: the volume, and
// the cluster's key on the shared storage.
func (n *node) storageReady() service.Condition {
	var list []service.Condition
	if v := n.volumeReady(); v != nil {
		list = append(list, v)
	}
	if n.member != nil {
		list = append(list, service.Poll("the shared storage", 200*time.Millisecond, time.Second, func(context.Context) error {
			if ok, waits := n.member.ready(); !ok {
				return errors.New(waits)
			}
			return nil
		}), n.belongs())
	}
	if len(list) == 0 {
		return nil
	}
	return service.All(list...)
}

// belongs is what services of a node of a cluster wait for: that it was not
// removed. nil for a node alone.
func (n *node) belongs() service.Condition {
	if n.member == nil {
		return nil
	}
	return service.Poll("this node to belong to the cluster", time.Second, time.Second, func(context.Context) error {
		if why, gone := n.member.gone(); gone {
			return fmt.Errorf("it was removed: %s", why)
		}
		return nil
	})
}

// writeSecret writes the part of the master's configuration that holds the
// cluster's secret, for the master alone to read.
func (n *node) writeSecret() error {
	if n.member == nil {
		return nil
	}
	secret, err := setup.ReadSecret(n.cfg.NodeDir())
	if err != nil {
		return err
	}
	text, err := layout.ClusterConfig(secret)
	if err != nil {
		return err
	}
	if _, err := layout.WriteFile(n.cfg.ClusterConf(), text, 0o600); err != nil {
		return err
	}
	if n.master.Credential != nil {
		return os.Chown(n.cfg.ClusterConf(), n.master.UID, n.master.GID)
	}
	return nil
}

// serving tells whether minions are answered.
func (n *node) serving() bool {
	d := n.doc.Load()
	return d != nil && d.ServingSince != nil
}
