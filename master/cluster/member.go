package cluster

// IsMember reports whether a master of that name (usually an address) belongs to the cluster now.
// It does not block.
func (p *Pool) IsMember(id string) bool {
	_, ok := p.view.Load().rec.Member(id)
	return ok
}
