package keys

// AsOnVolume makes a store of a local folder go by lists, as on a volume.
func (s *Store) AsOnVolume() { s.lists = true }
