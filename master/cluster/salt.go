package cluster

import (
	"path/filepath"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// configured returns the member entry of a Salt master that is listed in cluster_peers and has its
// key in the folder; for any other master it returns the zero Member. Such a Salt master may never
// ask to join: neither the one with the lowest address does, nor one that joined before it was
// restarted. present is the member of that name in the record, or the zero Member. If present is a
// Saltern master, configured returns the Salt master only if both have the same key.
func (p *Pool) configured(id string, present node.Member) node.Member {
	for _, s := range p.cfg.Peers {
		if peerName(s) != id || id == p.cfg.ID {
			continue
		}
		pub, err := p.folder.readFile(filepath.Join(peersDir, id+".pub"), 4096)
		if err != nil || present.Own && crypt.NormalizePEM(string(pub)) != crypt.NormalizePEM(present.Pub) {
			return node.Member{}
		}
		return node.Member{ID: id, Pub: string(pub)}
	}
	return node.Member{}
}

// tellRotation sends Salt's masters the event with which a Salt master announces a new cluster AES
// key (salt/master.py rotate_cluster_secret). The receivers then read the key's file again.
func (p *Pool) tellRotation() {
	data := wire.RotateEvent()
	blob, err := wire.SealEvent(data, p.session)
	if err == nil {
		blob, err = wire.Blob(blob)
	}

	if err != nil {
		p.log.Error("Salt's masters cannot be told of the new cluster key", "error", err)
		return
	}

	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, l := range p.links {
		if l.plain {
			l.queueItem(Jobs, &item{queuedAt: now, tag: wire.RotateTag, sealed: func() []byte { return blob }})
		}
	}
}
