package cluster

import (
	"path/filepath"

	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// configured returns the member entry of a Salt master that belongs to the cluster through
// cluster_peers and its key on the folder. A Salt master whose address comes first, or that joined
// in an earlier life, never asks to join. known is the member of this name, if any: a Saltern
// master that this Salt master has replaced with the same key.
func (p *Pool) configured(id string, known node.Member) node.Member {
	for _, s := range p.cfg.Peers {
		if peerName(s) != id || id == p.cfg.ID {
			continue
		}
		pub, err := p.folder.readFile(filepath.Join(peersDir, id+".pub"), 4096)
		if err != nil || known.Own && crypt.NormalizePEM(string(pub)) != crypt.NormalizePEM(known.Pub) {
			return node.Member{}
		}
		return node.Member{ID: id, Pub: string(pub)}
	}
	return node.Member{}
}

// tellRotation makes Salt's masters read the file of the AES key again, with the event that one of
// them would fire (salt/master.py rotate_cluster_secret).
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
