-- Dead letters from before 0011 have no cause: the broker looks for what they died of, and takes this away when it has been through.
INSERT INTO declaration VALUES ('upkeep', 'old deaths', x'80');
