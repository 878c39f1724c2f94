package engine

// EvictAbove has segments evicted that the local disk would have room for.
func (o *Options) EvictAbove(n int64) { o.evictAbove = n }
