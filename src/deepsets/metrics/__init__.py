"""How good an answer is."""

from ._ranking import mean_reciprocal_rank as mean_reciprocal_rank
from ._ranking import median_rank as median_rank
from ._ranking import ranks as ranks
from ._ranking import recall_at as recall_at
from ._scatter import scatter as scatter
from ._sums import exact_sums as exact_sums
from ._tags import TagScores as TagScores
from ._tags import tag_scores as tag_scores
from ._tags import top_tags as top_tags
