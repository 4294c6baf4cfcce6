-- The feed: what a retraction says when its version is gone.

-- Set on retractions, as they were at that moment: whoever could see the document then may be told its ids.
ALTER TABLE memory.feed_event ADD document_id text COLLATE "C", ADD owner_id text COLLATE "C",
  ADD tags text[] COLLATE "C";
